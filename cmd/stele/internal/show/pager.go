package show

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// pagerCommand returns the pager: $STELE_PAGER, else $PAGER, else less. It returns "" for no pager, also for cat.
func pagerCommand(lookup func(string) (string, bool)) string {
	command := ""
	for _, name := range []string{"STELE_PAGER", "PAGER"} {
		value, ok := lookup(name)
		if command = strings.TrimSpace(value); ok {
			if command == "cat" {
				return ""
			}
			return command
		}
	}
	if _, err := exec.LookPath("less"); err != nil {
		return ""
	}
	return "less -FRX"
}

// pager is a running pager.
type pager struct {
	io.WriteCloser
	command *exec.Cmd
}

// startPager runs a pager by the shell, because the command may have arguments. It returns nil for "".
func startPager(command string, stdout, stderr io.Writer) (*pager, error) {
	if command == "" {
		return nil, nil
	}
	p := &pager{command: exec.Command("sh", "-c", command)}
	p.command.Stdout, p.command.Stderr = stdout, stderr
	p.command.Env = os.Environ()
	if _, ok := os.LookupEnv("LESS"); !ok {
		p.command.Env = append(p.command.Env, "LESS=FRX") // less shows colors, also if $PAGER is just less
	}
	var err error
	if p.WriteCloser, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	return p, nil
}

// Close ends the input of the pager and waits until the user has left it.
func (p *pager) Close() error {
	if err := p.WriteCloser.Close(); err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return p.command.Wait()
}
