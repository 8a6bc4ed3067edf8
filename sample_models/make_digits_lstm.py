"""Train ``digits_lstm.onnx``: an LSTM that reads scikit-learn's digits row by row, eight steps of eight pixels.

Run it as ``make_digits_inception.py``:

    pip install torch==2.13.0 scikit-learn && python sample_models/make_digits_lstm.py
"""

from __future__ import annotations

from digits_common import agree, folder, halves, report, reproducible, save, train
from digits_recurrent import Rows, RowsWriter


def main() -> None:
    """Train, write, and print the scores of what was written."""
    out = folder(__doc__)
    fit, test = halves()
    reproducible()
    net = Rows("LSTM", size=8, hidden=48)
    train(net, fit, epochs=150, clean=15)
    writer = RowsWriter(net)
    writer.rows(net)
    model = writer.model("digits_lstm")
    agree(model, net, test)
    save(model, out)
    report(model, fit, test)


if __name__ == "__main__":
    main()
