package console

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// openBrowser starts the user's browser with a link, and waits until that has failed or seems to have worked. The browser stays when this
// program ends. The link is an argument of a process, which other users can see as long as
// that runs; it works once, and the browser uses it at once.
func openBrowser(ctx context.Context, link string) error {
	name := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		name = "open"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" && os.Getenv("BROWSER") == "":
		return errors.New("there is no display")
	}
	cmd := exec.Command(name, link)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C in the terminal is not for the browser
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// Some openers stay as long as the browser, and others fail soon.
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	case <-time.After(2 * time.Second):
		return nil
	}
}
