package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// defaultPort is a fixed port, so that links to moments stay valid when the program is started again.
const defaultPort = 6480

type options struct {
	client.Flags
	port   uint16
	noOpen bool
}

// Command returns the command `console`.
func Command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Open a page that shows objects, their past, changes and access",
		Long: `Console serves a page on this machine, opens it in the browser, and runs until you end it. The page shows
the objects of a control plane now and at any moment, who changed what, who may do what, the policy and the
health. It only reads.

The page reads with your kubeconfig, so it shows what you may see; with --as, what another user may see.
Your credentials stay in this program. It listens on 127.0.0.1 only, and the link that it prints works once,
so that no other user of this machine can open the page.

Without a browser on this machine, forward the port: ssh -L 6480:127.0.0.1:6480 HOST, and open the link there.`,
		Example: `  stele console
  stele console --context staging
  stele console --as alice --as-group team-data
  stele console --port 0 --no-open`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.AddFlags(cmd)
	o.AddIdentity(cmd)
	cmd.Flags().Uint16Var(&o.port, "port", defaultPort, "port on 127.0.0.1; 0 for any free one")
	cmd.Flags().BoolVar(&o.noOpen, "no-open", false, "print the link only, and open no browser")
	_ = cmd.RegisterFlagCompletionFunc("port", cobra.NoFileCompletions)
	return cmd
}

// run serves the page until the user ends the program.
func (o *options) run(cmd *cobra.Command) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	config, loader, err := o.Config()
	if err != nil {
		return err
	}
	config.WarningHandler = rest.NoWarnings{} // the page shows warnings
	about := About{}
	if about.Namespace, _, err = loader.Namespace(); err != nil {
		return err
	}
	if raw, err := loader.RawConfig(); err == nil {
		about.Context = cmp.Or(o.Context, raw.CurrentContext)
	}
	// A wrong address or wrong credentials are said here, before a page opens that can show nothing.
	if _, err := client.Read(ctx, config, "/version", nil); err != nil {
		return err
	}
	listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(o.port))))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("another program listens on port %d of 127.0.0.1, perhaps another console: give another --port, or --port 0 for any free one", o.port)
	}
	if err != nil {
		return err
	}
	defer listener.Close()
	handler, err := New(config, about, listener.Addr().String())
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if _, err := fmt.Fprintf(out, "Console  %s\nServer   %s\nThe link works once. Ctrl-C ends the console.\n", handler.Link(), client.PresentURL(config.Host)); err != nil {
		return err
	}
	opened := make(chan struct{})
	go func() { // the browser asks while this waits
		defer close(opened)
		if o.noOpen {
			return
		}
		if err := openBrowser(ctx, handler.Link()); err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "No browser could be started (%v): open the link yourself.\n", err)
		}
	}()
	err = serve(ctx, listener, handler)
	<-opened
	return err
}

// serve answers until the context ends.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		err := server.Close() // watches would keep a graceful end waiting
		<-ended
		return err
	}
}
