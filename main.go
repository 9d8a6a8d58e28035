// Command flatline runs chaos experiments on kind clusters: it breaks the way a
// kubelet keeps its client certificate and measures what happens to the node.
package main

import (
	"os"

	"github.com/flatline-chaos/flatline/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
