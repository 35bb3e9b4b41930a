"""How any config.json is read: fields, patterns, building blocks; what families are made of."""
