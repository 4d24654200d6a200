"""`python -m kubelocal` is the command `kubelocal`."""

from kubelocal.command import main

main()
