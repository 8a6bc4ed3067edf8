"""What calibration saw of each value, and what each calibrator makes of it."""
