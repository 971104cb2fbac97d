"""Makes the embedded models from nothing: tokenizers, training, and figures by execution on held-out compositions.

About half an hour of one CPU core. The same seed and libraries on the same machine give the same files.
"""
