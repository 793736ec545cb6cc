// Package planetest starts control planes for tests: the log in memory, static tokens, and none
// of the parts that a test does not ask for. It also has the requests, answers, watches and bundles
// that tests of several packages share.
//
//	p := planetest.Start(t, planetest.Options{Bundle: bundle})
//	client, err := dynamic.NewForConfig(p.Client("admin", "system:masters"))
package planetest

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/util/keyutil"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/projections/policies"
)

// The second handler of errors sleeps until some time after the last error of the process, or after its start. In a bubble
// of synctest, whose clock begins in the year 2000, that is 26 years.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }

// Tokens are the static tokens that a plane knows if its options name no other file.
const Tokens = `admin-token,admin,1,"system:masters"
editor-token,eddie,2,"editors"
reader-token,reader,3,
nobody-token,nobody,4,
helper-token,helper,5,
`

// Options say how a plane differs from others. Fields of the Config that a test leaves empty have
// the defaults of this package, or of package plane.
type Options struct {
	plane.Config
	// Bundle is a CUE file with a bundle, which is put in force; "" for none.
	Bundle string
	// Dir is the plane's folder, which may be that of a plane that was stopped; "" for a new one, which Stop deletes.
	// It hides the field of the Config.
	Dir string
	// Backend keeps the log; nil for a new log in memory.
	Backend eventlog.Backend
	// Archive has the older batches of the log; nil for none.
	Archive eventlog.Archive
	// KeyFile has the key that signs tokens of service accounts; "" for a new one.
	KeyFile string
	// Reads is the highest format level that the plane reads; 0 for what the program reads.
	Reads uint32
	// Clock is the log's clock; nil for that of the machine.
	Clock func() time.Time
}

// Plane is a control plane of a test.
type Plane struct {
	*plane.Plane
	Backend eventlog.Backend
	// Dir is the plane's folder.
	Dir string
	// KeyFile has the key that signs tokens of service accounts.
	KeyFile string
	// Err is what Run has returned, once the plane is stopped.
	Err error

	stop   func() error
	remove func() // deletes Dir, if it is new
}

// Start starts a plane, which stops when the test ends.
func Start(t testing.TB, o Options) *Plane {
	t.Helper()
	p, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	if o.Bundle != "" {
		p.Bootstrap(t, o.Bundle)
	}
	return p
}

// Open starts a plane without a bundle; Stop stops it. It is for tests of starts that fail, and for tests that stop
// planes in synctest's bubbles.
func Open(ctx context.Context, o Options) (*Plane, error) {
	dir, remove := o.Dir, func() {}
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp(inMemory, "plane"); err != nil {
			return nil, err
		}
		remove = func() { os.RemoveAll(dir) }
	}
	p := &Plane{Backend: o.Backend, Dir: dir, KeyFile: filepath.Join(dir, "sa.key"), remove: remove}
	if p.Backend == nil {
		p.Backend = new(memlog.Store).Open(nil)
	}
	tokens := filepath.Join(dir, "tokens.csv")
	err := os.WriteFile(tokens, []byte(Tokens), 0o600)
	if o.KeyFile != "" {
		p.KeyFile = o.KeyFile
	} else if err == nil {
		_, err = WriteKeys(p.KeyFile)
	}
	if err == nil {
		p.Plane, err = plane.New(ctx, o.config(p, tokens))
	}
	if err != nil {
		remove()
		return nil, err
	}
	p.stop, err = p.Start(context.WithoutCancel(ctx))
	return p, err
}

// config returns the Config with the defaults of this package.
func (o *Options) config(p *Plane, tokens string) plane.Config {
	c := o.Config
	c.Dir = p.Dir
	c.OpenLog = func(ctx context.Context) (*eventlog.Log, error) {
		log, err := eventlog.Open(ctx, p.Backend, eventlog.Options{Clock: o.Clock, Reads: o.Reads})
		if err == nil && o.Archive != nil {
			log.SetArchive(o.Archive)
		}
		return log, err
	}
	if c.Load == nil && c.Plugins.Dir == "" { // plugins need the authorizers of the plane
		c.Load = func(proposal *policies.Proposal) (*policy.Policy, error) { return Load(proposal.Form.Bytes()) }
	}
	if c.Replicas == (plane.Replicas{}) {
		c.Replicas.Alone = true // tests count the revisions
	}
	if c.Decisions == (plane.Decisions{}) {
		c.Decisions.Unanchored = true // for the same reason
	}
	if c.Checkpoints == (checkpoints.Options{}) {
		c.Checkpoints.Unrecorded = true // for the same reason
	}
	if c.Version == (version.Info{}) {
		c.Version = version.Info{Major: "1", Minor: "37"}
	}
	if a := &c.Authentication; a.TokenFile == "" {
		a.TokenFile = tokens
	}
	if a := &c.Authentication; a.FailuresPerMinute == 0 {
		a.FailuresPerMinute = -1 // tests try many wrong credentials
	}
	a := &c.Authentication.ServiceAccounts
	a.SigningKeyFile = p.KeyFile
	a.JWKSURI = cmp.Or(a.JWKSURI, "https://stele.example/openid/v1/jwks")
	c.Authentication.BootstrapTokens = true
	c.Authentication.ReloadEvery = cmp.Or(c.Authentication.ReloadEvery, 365*24*time.Hour) // tests say when
	return c
}

// inMemory is a folder on a file system in memory, if there is one. Planes of tests crash, machines
// do not, so that waiting for a disk would prove nothing.
var inMemory = func() string {
	if dir, err := os.MkdirTemp("/dev/shm", ""); err == nil {
		os.Remove(dir)
		return "/dev/shm"
	}
	return ""
}()

// Stop stops the plane and deletes its folder. It may be called more than once.
func (p *Plane) Stop() {
	p.Err = p.stop()
	p.remove()
	p.Backend.Close()
}

// Bootstrap puts a bundle in force, and creates the namespaces that every control plane has.
func (p *Plane) Bootstrap(t testing.TB, bundle string) {
	t.Helper()
	p.Activate(t, bundle)
	if err := activation.CreateNamespaces(t.Context(), p.Committer); err != nil {
		t.Fatal(err)
	}
}

// Activate puts a bundle in force.
func (p *Plane) Activate(t testing.TB, bundle string) {
	t.Helper()
	if _, err := activation.ActivateCompiled(t.Context(), p.Committer, Compile(t, bundle), "test"); err != nil {
		t.Fatal(err)
	}
}

var (
	compiledMu sync.Mutex
	compiled   = map[string]*compile.Result{}
	loadedMu   sync.Mutex
	loaded     = map[string]*policy.Policy{}
)

// Compile compiles a CUE file with a bundle, once per process and text.
func Compile(t testing.TB, bundle string) *compile.Result {
	t.Helper()
	compiledMu.Lock()
	defer compiledMu.Unlock()
	if c := compiled[bundle]; c != nil {
		return c
	}
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue":         {Data: []byte(bundle)},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	c, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	compiled[bundle] = c
	return c
}

// Load loads a policy, once per process and form: planes may share it, because it never changes.
func Load(form []byte) (*policy.Policy, error) {
	loadedMu.Lock()
	defer loadedMu.Unlock()
	if p := loaded[string(form)]; p != nil {
		return p, nil
	}
	p, err := probes.Load(form)
	if err == nil {
		loaded[string(form)] = p
	}
	return p, err
}

// WriteKeys writes a new key for tokens of service accounts to a file, then older ones, and returns
// the new one. It takes less time to make than the key that a plane would make.
func WriteKeys(file string, older ...crypto.PrivateKey) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	var text []byte
	for _, k := range append([]crypto.PrivateKey{key}, older...) {
		part, err := keyutil.MarshalPrivateKeyToPEM(k)
		if err != nil {
			return nil, err
		}
		text = append(text, part...)
	}
	return key, pki.WritePrivate(file, text)
}
