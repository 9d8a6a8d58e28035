// Package experiments holds the experiments that flatline ships, one file each.
package experiments

import "embed"

// FS has every experiment as <name>.yaml.
//
//go:embed *.yaml
var FS embed.FS
