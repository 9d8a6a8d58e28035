# shellcheck shell=bash
# Keeps a copy of the role $1, takes the signer $2 out of every rule of it that allows to sign, and
# says when, for Inject of signer.go. A rule that would be left with no name, which means all, goes.
set -eo pipefail
keep clusterrole "$1" role-before
jq --arg signer "$2" '.rules |= (map(if (.verbs | index("sign")) then .resourceNames -= [$signer] else . end) |
		map(select((.verbs | index("sign") | not) or (.resourceNames | length > 0)))) |
	.metadata.annotations["rbac.authorization.kubernetes.io/autoupdate"] = "false"' role-before | admin replace -f - >/dev/null
date +%s.%N
