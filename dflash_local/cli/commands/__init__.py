"""The commands of `dflash-local`, a module for each."""
