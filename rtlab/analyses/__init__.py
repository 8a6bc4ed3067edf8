"""What follows from the results of variants: one folder an analysis, pure functions.

``panels`` lists those that have a panel.
"""
