"""How engines use memory: one package each, behind the small interface of `base`; `registry` lists them."""
