; Inno Setup 6: run by build_installer.py, which gives the version. Untested: nobody ran it yet.
#ifndef Version
  #error Run packaging\windows\build_installer.py
#endif

[Setup]
AppId={{7B0F6C1E-5D0B-4E0B-9C53-6B7C5B0C7A51}
AppName=kvplanner
AppVersion={#Version}
AppPublisher=kvplanner
DefaultDirName={autopf}\kvplanner
DefaultGroupName=kvplanner
PrivilegesRequired=lowest
ArchitecturesAllowed=x64compatible
ArchitecturesInstallIn64BitMode=x64compatible
LicenseFile=..\..\LICENSE
UninstallDisplayIcon={app}\kvplanner-gui.exe
Compression=lzma2/max
SolidCompression=yes
ChangesEnvironment=yes
ChangesAssociations=yes
WizardStyle=modern

[Tasks]
Name: path; Description: "Put the kvplanner command on the PATH"
Name: desktop; Description: "A shortcut on the desktop"; Flags: unchecked

[InstallDelete]
; Modules of the version before would be found beside the new ones.
Type: filesandordirs; Name: "{app}\_internal"

[Files]
Source: "..\..\dist\kvplanner\*"; DestDir: "{app}"; Flags: recursesubdirs ignoreversion

[Icons]
Name: "{group}\kvplanner"; Filename: "{app}\kvplanner-gui.exe"
Name: "{autodesktop}\kvplanner"; Filename: "{app}\kvplanner-gui.exe"; Tasks: desktop

[Registry]
; "Open with" offers it for models and plans; it takes no file type for itself.
Root: HKA; Subkey: "Software\Classes\Applications\kvplanner-gui.exe\shell\open\command"; ValueType: string; ValueData: """{app}\kvplanner-gui.exe"" ""%1"""; Flags: uninsdeletekey
Root: HKA; Subkey: "Software\Classes\Applications\kvplanner-gui.exe\SupportedTypes"; ValueType: string; ValueName: ".gguf"
Root: HKA; Subkey: "Software\Classes\Applications\kvplanner-gui.exe\SupportedTypes"; ValueType: string; ValueName: ".safetensors"
Root: HKA; Subkey: "Software\Classes\Applications\kvplanner-gui.exe\SupportedTypes"; ValueType: string; ValueName: ".json"
Root: HKCU; Subkey: "Environment"; ValueType: expandsz; ValueName: "Path"; ValueData: "{olddata};{app}"; Tasks: path; Check: NotOnPath

[Code]
function NotOnPath: Boolean;
var
  Paths: string;
begin
  if not RegQueryStringValue(HKCU, 'Environment', 'Path', Paths) then
    Paths := '';
  Result := Pos(';' + Uppercase(ExpandConstant('{app}')) + ';', ';' + Uppercase(Paths) + ';') = 0;
end;

procedure CurUninstallStepChanged(Step: TUninstallStep);
var
  Paths, App: string;
  At: Integer;
begin
  if Step <> usPostUninstall then
    Exit;
  App := ExpandConstant('{app}');
  if RegQueryStringValue(HKCU, 'Environment', 'Path', Paths) then
  begin
    At := Pos(';' + Uppercase(App) + ';', ';' + Uppercase(Paths) + ';');
    if At > 0 then
    begin
      // The entry with the semicolon before it, or after it where it is the first.
      if At > 1 then
        Delete(Paths, At - 1, Length(App) + 1)
      else
        Delete(Paths, 1, Length(App) + 1);
      RegWriteExpandStringValue(HKCU, 'Environment', 'Path', Paths);
    end;
  end;
end;
