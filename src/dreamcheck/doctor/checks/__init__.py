"""One check, one file: each holds ``CHECK``, found by ``dreamcheck.doctor.registry``."""
