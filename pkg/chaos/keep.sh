# shellcheck shell=bash
# For scripts that run on the control-plane node, in front of which Go puts admin().

# keep KIND NAME FILE: the object as it can be put back with replace or create. The file is
# there as a whole or not at all.
keep() {
	admin get "$1" "$2" -o json |
		jq 'del(.metadata.uid, .metadata.resourceVersion, .metadata.creationTimestamp, .metadata.managedFields)' > "$3.new"
	sync "$3.new"
	mv "$3.new" "$3"
}
