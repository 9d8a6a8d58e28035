package cli

import (
	"errors"
	"fmt"

	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/pkg/chaos"
)

// Exit codes beside those of outcomes (judge.Outcome.ExitCode).
const (
	exitInvalid     = 2
	exitSetupFailed = 3
	exitInterrupted = 130
)

// A codeError carries an exit code. Without err nothing more is said.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// hasCode says whether an error knows its exit code already.
func hasCode(err error) bool {
	var code *codeError
	var invalid *chaos.InvalidError
	return errors.As(err, &code) || errors.As(err, &invalid)
}

// exitCode says what went wrong and returns the exit code for it.
func (a *app) exitCode(err error) int {
	if err == nil {
		return 0
	}
	exit := exitSetupFailed
	var code *codeError
	var invalid *chaos.InvalidError
	switch {
	case errors.As(err, &code):
		exit, err = code.code, code.err
	case errors.As(err, &invalid):
		exit = exitInvalid
	}
	if err != nil {
		fmt.Fprintln(a.err, report.Lines("flatline: "+err.Error())) // which may quote a record
	}
	return exit
}
