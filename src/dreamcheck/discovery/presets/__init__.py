"""Input specifications that ship, one TOML file each."""
