package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/experiments"
	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/internal/safely"
	"github.com/flatline-chaos/flatline/pkg/chaos"
)

// usage makes wrong arguments an input error.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return &chaos.InvalidError{Text: fmt.Sprintf("%v; see %s --help", err, c.CommandPath())}
		}
		return nil
	}
}

// oneExperiment wants the name of an experiment.
func oneExperiment(_ *cobra.Command, args []string) error {
	if len(args) == 1 && args[0] != "" {
		return nil
	}
	return errors.New("say which experiment, such as csr-denied; flatline list names them all")
}

// profileFlag adds --profile, and completion of it and of experiments' names.
func profileFlag(c *cobra.Command, profile *string) {
	c.Flags().StringVar(profile, "profile", "", `timers to run with: default are Kubernetes' own, fast are short (default "default")`)
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		names, _ := chaos.Names(experiments.FS)
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	complete(c, "profile", chaos.DefaultProfile, "fast")
}

// setFlag adds --set.
func setFlag(c *cobra.Command, set *[]string) {
	c.Flags().StringArrayVar(set, "set", nil,
		`a flag of a component: component.flag=value, or component.flag="value,with,commas"; may be repeated`)
}

// artifactsFlag adds --artifacts.
func (a *app) artifactsFlag(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "artifacts", a.artifacts(), "folder for the records of runs; $ARTIFACTS")
}

// artifacts is the folder for the records of runs, unless a flag says otherwise.
func (a *app) artifacts() string {
	if dir := a.env("ARTIFACTS"); dir != "" {
		return dir
	}
	return "_artifacts"
}

// outputFlag adds -o for the renderings of a run.
func outputFlag(c *cobra.Command, format *string) {
	c.Flags().StringVarP(format, "output", "o", "text", "one of "+strings.Join(report.Formats, ", "))
	complete(c, "output", report.Formats...)
}

// checkFormat refuses a value of -o that is no rendering of a run.
func checkFormat(format string) error {
	if slices.Contains(report.Formats, format) {
		return nil
	}
	return &chaos.InvalidError{Text: fmt.Sprintf("-o %s: want one of %s", format, strings.Join(report.Formats, ", "))}
}

// complete offers the values of a flag to the shell.
func complete(c *cobra.Command, flag string, values ...string) {
	// The only error is that the flag does not exist.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// load finds an experiment by its name, or in a file.
func load(name, profile string) (*chaos.Experiment, error) {
	if !strings.HasSuffix(name, ".yaml") {
		return chaos.Load(experiments.FS, name, profile)
	}
	f, err := os.Open(name) // it was named: it may be a pipe
	if err != nil {
		return nil, &chaos.InvalidError{Text: err.Error()}
	}
	defer f.Close()
	data, err := safely.ReadAll(f, name, chaos.MaxFile)
	if err != nil {
		return nil, &chaos.InvalidError{Text: err.Error()}
	}
	return chaos.Parse(experiments.FS, name, data, profile)
}

// loadWith finds an experiment and sets flags of its cluster.
func loadWith(name, profile string, set []string) (*chaos.Experiment, error) {
	exp, err := load(name, profile)
	if err != nil {
		return nil, err
	}
	var settings []chaos.Setting
	for _, text := range set {
		values, err := chaos.ParseSettings(text)
		if err != nil {
			return nil, err
		}
		if len(values) > 1 {
			return nil, &chaos.InvalidError{Text: fmt.Sprintf(
				"--set %s: one value belongs here, in double quotes if it has commas; flatline tune tries several", text)}
		}
		settings = append(settings, values[0])
	}
	exp = exp.With(settings)
	return exp, exp.Possible()
}
