# shellcheck shell=bash
# Prints what a run must leave as it found it in the API: the binding $1, the role $2 and the
# nodes, for clusterScript of repair.go.
# shellcheck disable=SC2046 # what is said of a thing is one line, with one blank between words
echo subjects=$(admin get clusterrolebinding "$1" -o jsonpath='{range .subjects[*]}{.kind} {.name}, {end}')
echo signer=$(admin get clusterrole "$2" -o json | jq -cS '[.rules, .metadata.annotations]' | sha256sum | cut -c1-16)
echo nodes=$(admin get nodes -o jsonpath='{range .items[*]}{.metadata.name} Ready={.status.conditions[?(@.type=="Ready")].status} {.spec.taints[*].key}; {end}')
