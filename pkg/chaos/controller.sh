# shellcheck shell=bash
# For scripts about kube-controller-manager.

# container prints the id of its running container. With pipefail it fails where nobody can
# tell, which must not look like none.
container() { crictl ps -q --name '^kube-controller-manager$' | cut -c1-13 | sed -n 1p; }

# process prints its process, which a node sees under its whole name.
process() { pgrep -o -f '^kube-controller-manager '; }
