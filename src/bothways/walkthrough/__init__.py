"""The walkthrough: how the encoder computes, in NumPy alone; the oracle that the PyTorch model is checked against."""
