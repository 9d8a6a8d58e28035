package chaos_test

import (
	"context"
	"fmt"
	"os"

	"github.com/flatline-chaos/flatline/experiments"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// Run an experiment from a suite of one's own: it takes two minutes and a Docker
// engine. (TestRealExample runs it.)
func ExampleRun() {
	exp, err := chaos.Load(experiments.FS, "csr-denied", "fast")
	if err != nil {
		fmt.Println(err) // the file, the field, and what would be right
		return
	}
	run, err := chaos.Run(context.Background(), exp, chaos.Options{
		Artifacts: os.TempDir(),
		Image:     cluster.Choice{Override: os.Getenv("NODE_IMAGE")},
	})
	if err != nil {
		fmt.Println(err) // there is no record
		return
	}
	fmt.Println(run.Outcome)
	for _, m := range run.Milestones {
		if m.Name == judge.ReadyUnknown {
			fmt.Println(m.Name, "after", m.After.Name, m.Verdict)
		}
	}
	// Prints:
	// pass
	// ReadyUnknown after LeaseStalled pass
}
