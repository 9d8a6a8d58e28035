// Package experiments holds the experiments that flatline ships, one file each.
package experiments

import "embed"

// FS has every experiment as <name>.yaml, and what they share in defaults.yaml and groups.yaml.
//
//go:embed *.yaml
var FS embed.FS

// Schema is a JSON schema of the files, for editors. A test derives it from the types that
// read them.
//
//go:embed schema.json
var Schema []byte
