"""SGLang's options, each declared once, and the flags that are none."""
