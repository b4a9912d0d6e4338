"""Search protocols that ship, as TOML."""
