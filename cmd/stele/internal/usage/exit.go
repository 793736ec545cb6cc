package usage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes of the program. A command that answers a question (policy explain, diff --exit-code) exits with
// ExitFailure for "no", and with ExitUsage if it found no answer. One that compares a log or a backup with what was kept of it
// exits with ExitIncomparable if nothing is wrong but something could not be compared.
const (
	ExitFailure      = 1
	ExitUsage        = 2
	ExitIncomparable = 3
)

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	error
}

func (e exitError) Unwrap() error { return e.error }

// Exit returns err with an exit code of its own.
func Exit(code int, err error) error { return exitError{code, err} }

// ErrPrinted is the error of a command that has already printed the reason.
var ErrPrinted = errors.New("")

// usageError is a mistake on the command line. The command has done nothing.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Errorf returns an error about a mistake on the command line: the program exits with ExitUsage.
func Errorf(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Mark marks an error as a mistake on the command line. It returns nil for nil.
func Mark(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// NoAnswer returns the error of a command that answers a question by its exit code: err with the code ExitUsage. It
// returns err unchanged if the answer has been printed, or if nobody reads the output.
func NoAnswer(err error) error {
	if err == nil || errors.Is(err, ErrPrinted) || errors.Is(err, syscall.EPIPE) {
		return err
	}
	return Exit(ExitUsage, err)
}

// ExitCode returns the exit code of the program after an error, or after none.
func ExitCode(err error) int {
	var exit exitError
	var mistake usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &mistake):
		return ExitUsage
	}
	return ExitFailure
}

// Interruptible returns a context of the command that ends when the user interrupts the program.
func Interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
}
