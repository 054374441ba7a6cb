"""`lunette demo`: a network trained on handwritten digits, checked exactly, and a page that shows it.

digits       the data, the network, the training
exact        the same kind of network on rational numbers; the error of a fast kernel in units of the last place
beside       the same training step in PyTorch
conformance  a short look at the backends that are installed
robust       the trained network in boxes around the test digits: proofs, counterexamples, certificates that are checked
show         all of it in order, with what is printed
"""
