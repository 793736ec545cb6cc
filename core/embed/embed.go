// Package embed runs a control plane inside a program or a test, without a server beside it.
//
//	cp, err := embed.Start(ctx, embed.Options{CRDs: os.DirFS("config/crd/bases")})
//	...
//	defer cp.Stop()
//	manager, err := ctrl.NewManager(cp.Config(), ctrl.Options{})
//
// Requests of this process need no network and no credential: a [rest.Config] names the user. They pass all stages, as those of other
// clients do. Other processes reach the API if [Options.Listen] is set.
//
// This package is public: its functions and types stay as they are within a major version. What [Options.Configure] gets belongs to
// package plane, which may change with each version.
package embed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/auth/loopback"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/controllers"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/datadir"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy/bundles"
)

// Options say what a control plane serves, and where it keeps it. One of Bundle and CRDs is required.
type Options struct {
	// Bundle is the module of the policy, with the bundle in its root: os.DirFS of a folder, an embed.FS, or an fstest.MapFS. If Dir has
	// a policy already, that one stays in force.
	Bundle fs.FS
	// CRDs are files in YAML or JSON with CustomResourceDefinitions, such as those of controller-gen, in place of a Bundle. Other objects in
	// these files are ignored. The policy has these kinds and no other rules, so only users in the group system:masters may use them.
	CRDs fs.FS
	// Dir is the folder of the data, as --data-dir of stele serve. If it is empty, the log is in memory, other files are in a folder for
	// temporary files, and Stop deletes everything.
	Dir string
	// Listen is the address at which other processes reach the API, by TLS: such as 127.0.0.1:0 for any free port; "" for none.
	Listen string
	// Controllers are those that run, as --controllers of stele serve; nil for all.
	Controllers []string
	// Logger gets messages for operators; nil for none.
	Logger *slog.Logger
	// Configure changes what this package does not offer, before the control plane is made; nil for nothing.
	Configure func(*plane.Config)
}

// ControlPlane is a control plane that runs in this process. It is an [http.Handler] of its API. Its methods are safe for concurrent
// use.
type ControlPlane struct {
	plane  *plane.Plane
	pki    string
	cancel context.CancelFunc
	done   chan struct{} // closed when err is set
	err    error
	stop   func() error
}

// Start starts a control plane, and returns when it is ready. It runs until Stop is called, also if the context ends later. An invalid
// policy is a [*plane.PolicyError], which lists what is wrong with it.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	config, err := o.config()
	if err != nil {
		return nil, fmt.Errorf("embed: %w", err)
	}
	dir, err := o.openDir()
	if err != nil {
		return nil, fmt.Errorf("embed: %w", err)
	}
	config.Dir, config.OpenLog = dir.path, dir.open
	if o.Listen != "" {
		if config.Listener, err = net.Listen("tcp", o.Listen); err != nil {
			return nil, errors.Join(fmt.Errorf("embed: %w", err), dir.close())
		}
	}
	if o.Configure != nil {
		o.Configure(&config)
	}
	p, err := plane.New(ctx, config)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embed: %w", err), dir.close())
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &ControlPlane{plane: p, pki: filepath.Join(dir.path, "pki"), cancel: cancel, done: make(chan struct{})}
	if config.PKIDir != "" {
		c.pki = config.PKIDir
	}
	go func() {
		defer close(c.done)
		c.err = p.Run(running)
	}()
	c.stop = sync.OnceValue(func() error {
		cancel()
		<-c.done
		return errors.Join(c.err, p.Close(), dir.close())
	})
	select {
	case <-p.Ready():
		return c, nil
	case <-c.done:
		err = errors.New("embed: the control plane did not start")
	case <-ctx.Done():
		err = fmt.Errorf("embed: the control plane was not ready in time: %w", context.Cause(ctx))
	}
	return nil, errors.Join(err, c.stop())
}

// config returns the configuration, but for what depends on the folder.
func (o *Options) config() (c plane.Config, err error) {
	switch {
	case o.Bundle != nil && o.CRDs != nil:
		return c, errors.New("there are Bundle and CRDs: give one of them; a bundle can embed CustomResourceDefinitions")
	case o.Bundle != nil:
		c.Policy, err = bundles.ReadFS(o.Bundle, ".")
	case o.CRDs != nil:
		c.Policy, err = definitions(o.CRDs)
	default:
		return c, errors.New("there is no policy: give a Bundle or CRDs")
	}
	if err != nil {
		return c, err
	}
	selected := o.Controllers
	if selected == nil {
		selected = []string{"*"}
	}
	if c.Controllers, err = controllers.Select(selected); err != nil {
		return c, err
	}
	c.Compile = compiled.compile
	c.EventTTL, c.Logger = time.Hour, o.Logger // as stele serve
	c.Version = version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2+stele"}
	return c, nil
}

// folder is where a control plane keeps its data.
type folder struct {
	path  string
	open  func(context.Context) (*eventlog.Log, error)
	close func() error
}

func (o *Options) openDir() (*folder, error) {
	if o.Dir != "" {
		data, err := datadir.Open(o.Dir, datadir.Options{Level: eventlog.SealingLevel, Logger: o.Logger})
		if err != nil {
			return nil, err
		}
		return &folder{data.Path(), data.OpenLog, data.Close}, nil
	}
	path, err := os.MkdirTemp("", "stele-")
	if err != nil {
		return nil, err
	}
	log := new(memlog.Store).Open(nil)
	return &folder{
		path: path,
		open: func(ctx context.Context) (*eventlog.Log, error) {
			return eventlog.Open(ctx, log, eventlog.Options{Level: eventlog.SealingLevel})
		},
		close: func() error { return errors.Join(log.Close(), os.RemoveAll(path)) },
	}, nil
}

// Stop stops the control plane: requests in flight end, and without a Dir all data is deleted. It returns why the control plane failed, if
// it did. It may be called more than once.
func (c *ControlPlane) Stop() error { return c.stop() }

// Done returns a channel that is closed when the control plane does not run any more: after Stop, or because it failed.
func (c *ControlPlane) Done() <-chan struct{} { return c.done }

// ServeHTTP answers a request to the API. Who sends it is told by its credentials.
func (c *ControlPlane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-c.done: // the log would be waited for
		http.Error(w, "the control plane has stopped", http.StatusServiceUnavailable)
	default:
		c.plane.ServeHTTP(w, r)
	}
}

// Config returns a configuration for clients of this process, as the user admin in the group system:masters.
func (c *ControlPlane) Config() *rest.Config { return c.ConfigFor("admin", user.SystemPrivilegedGroup) }

// ConfigFor returns a configuration for clients of this process, as a user in groups. The group system:authenticated is added.
func (c *ControlPlane) ConfigFor(name string, groups ...string) *rest.Config {
	return loopback.Config(c, &user.DefaultInfo{Name: name, Groups: append(groups[:len(groups):len(groups)], user.AllAuthenticated)})
}

// URL returns the URL of the API for other processes; "" without [Options.Listen].
func (c *ControlPlane) URL() string {
	if address := c.plane.Address(); address != "" {
		return "https://" + address
	}
	return ""
}

// clientLife is how long a certificate of [ControlPlane.Kubeconfig] is valid.
const clientLife = 24 * time.Hour

// Kubeconfig returns a kubeconfig for other processes, with a new certificate of a user in groups, which is valid for a day. It needs
// [Options.Listen].
func (c *ControlPlane) Kubeconfig(name string, groups ...string) ([]byte, error) {
	if c.URL() == "" {
		return nil, errors.New("embed: no other process reaches this control plane: set Options.Listen, such as 127.0.0.1:0")
	}
	authority, err := pki.OpenAuthority(c.pki)
	if err != nil {
		return nil, fmt.Errorf("embed: %w", err)
	}
	pair, err := authority.Issue(name, groups, clientLife)
	if err != nil {
		return nil, fmt.Errorf("embed: %w", err)
	}
	return authority.Kubeconfig(c.URL(), pki.OwnName, name, pair)
}

// Push puts another policy in force, as stele policy push does for the administrator. An error of the API says what is wrong
// with it.
func (c *ControlPlane) Push(ctx context.Context, bundle fs.FS) error {
	source, err := bundles.ReadFS(bundle, ".")
	if err != nil {
		return fmt.Errorf("embed: %w", err)
	}
	if err := push(ctx, c.Config(), activation.SpecOf(source)); err != nil {
		return fmt.Errorf("embed: %w", err)
	}
	return nil
}
