"""What calls an engine many times or keeps plans: reports, plan files, sweeps."""
