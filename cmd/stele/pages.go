package main

import (
	"net/http"
	"net/http/pprof"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"
	"stele.dev/stele/cmd/stele/internal/build"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core"
	"stele.dev/stele/core/call"
)

// pages are the paths on which the program shows what it is and does, for people who operate it. Policies grant them as
// non-resource URLs.
type pages []core.Route

// Handle adds a page.
func (p *pages) Handle(path string, handler http.Handler) { p.add(path, handler.ServeHTTP) }

func (p *pages) add(path string, serve http.HandlerFunc) {
	*p = append(*p, core.Route{
		Path: path, Long: strings.HasPrefix(path, "/debug/pprof/"), // a profile takes as long as its client asks for
		Serve: func(c *call.Call) error {
			c.Sent = true
			serve(c.W, c.HTTP)
			return nil
		},
	})
}

// component is the name of the program in its pages.
const component = "stele"

// newPages returns the pages of kube-apiserver: /statusz (KEP-4827), /flagz (KEP-4828), and the profiles of Go if they are
// asked for.
func newPages(flags *pflag.FlagSet, profiling bool) []core.Route {
	var p pages
	paths := []string{"/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"}
	if profiling {
		p.add("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusMovedPermanently).ServeHTTP)
		p.add("/debug/pprof/", profile)
		paths = append(paths, "/debug/pprof")
	}
	flagz.Install(&p, component, shownFlags{flags})
	statusz.Install(&p, component, statusz.NewRegistry(programVersion(), statusz.WithListedPaths(paths)))
	return p
}

// profile answers with a profile, or the list of them.
func profile(w http.ResponseWriter, r *http.Request) {
	switch strings.TrimPrefix(r.URL.Path, "/debug/pprof/") {
	case "cmdline":
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(usage.Redact(strings.Join(os.Args, "\x00")))) // a client that disconnected needs no answer
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}

// programVersion returns the version of the program, and of the Kubernetes API that it serves.
func programVersion() compatibility.EffectiveVersion {
	own, err := version.Parse(build.Version)
	if err != nil {
		own = version.MajorMinor(0, 0) // a build may have any version
	}
	effective := compatibility.NewEffectiveVersion(own, false, version.MajorMinor(0, 0), version.MajorMinor(0, 0))
	effective.SetEmulationVersion(version.MustParse(build.KubernetesVersion))
	return effective
}

// shownFlags are the flags that /flagz shows, without secrets.
type shownFlags struct{ *pflag.FlagSet }

// GetFlagz implements [flagz.Reader].
func (s shownFlags) GetFlagz() map[string]string {
	shown := map[string]string{}
	s.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Deprecated == "" {
			shown[f.Name] = usage.Redact(f.Value.String())
		}
	})
	return shown
}
