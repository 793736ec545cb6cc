// Package encryption encrypts contents at rest, by the file that kube-apiserver reads for the same purpose: an
// EncryptionConfiguration of apiserver.config.k8s.io/v1, with the providers identity, aesgcm, aescbc, secretbox and kms. The
// encryption itself is done by the packages below k8s.io/apiserver/pkg/storage/value. Package eventlog says what is encrypted,
// and how it is bound to the log.
package encryption

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"
	"k8s.io/apiserver/pkg/storage/value"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/limits/reload"
	"stele.dev/stele/limits/steady"
)

// Options for [Open].
type Options struct {
	// File is the EncryptionConfiguration; "" for that of LocalFile alone.
	File string
	// Reload lets [Keys.Run] read File again when it changes.
	Reload bool
	// LocalFile is another one, which opens what File does not open, and which seals if File is "". See [MakeLocal].
	LocalFile string
	// Logger gets messages for operators; nil for none.
	Logger *slog.Logger
	// Outcome receives whether a changed file is used; nil for nobody.
	Outcome func(error)
}

// Keys seals and opens contents. It is safe for concurrent use.
type Keys struct {
	o       Options
	content []byte // of the file, at the start
	local   *providers
	inUse   atomic.Pointer[providers] // of File, or local

	mu sync.Mutex // held while providers.seals is replaced
}

var _ eventlog.Keys = (*Keys)(nil)

// providers are those of one file.
type providers struct {
	config *encryptionconfig.EncryptionConfiguration
	stop   context.CancelFunc
	// seals has the kinds that were asked for, and whether they are sealed. The map is immutable: a request reads it without a
	// lock, and without memory of its own.
	seals atomic.Pointer[map[eventlog.Kind]bool]
}

// Open reads the files. The caller closes the keys. A KMS plugin that cannot be reached is no error.
func Open(o Options) (*Keys, error) {
	k := &Keys{o: o}
	k.o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	var err error
	if o.LocalFile != "" {
		if k.local, err = load(o.LocalFile, false); err != nil {
			return nil, fmt.Errorf("%s: %w", o.LocalFile, err)
		}
	}
	now := k.local
	if o.File != "" {
		if k.content, err = reload.Read(o.File); err == nil {
			now, err = load(o.File, o.Reload)
		}
		if err != nil {
			k.Close()
			return nil, fmt.Errorf("--encryption-provider-config: %w", err)
		}
	}
	if now == nil {
		return nil, errors.New("encryption: there is no file")
	}
	k.inUse.Store(now)
	return k, nil
}

// quotedKey is a key as some errors of the library quote it.
var quotedKey = regexp.MustCompile(`"Secret":"[^"]*"`)

// load reads a file, and starts to probe the KMS plugins that it names.
func load(file string, automatic bool) (*providers, error) {
	text, err := reload.Read(file)
	if err != nil {
		return nil, err
	}
	// The library's error quotes the file if it has no kind, and so perhaps a key.
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return nil, fmt.Errorf("it is not valid YAML: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	if kind.Kind == "" || kind.APIVersion == "" {
		return nil, errors.New("it has no kind or no apiVersion: want an EncryptionConfiguration of apiserver.config.k8s.io/v1; if the file is cut off, restore it from a copy")
	}
	ctx, stop := context.WithCancel(context.Background())
	config, err := encryptionconfig.LoadEncryptionConfig(ctx, file, automatic, "")
	if err != nil {
		stop()
		return nil, errors.New(quotedKey.ReplaceAllString(strings.Join(strings.Fields(err.Error()), " "), `"Secret":"REDACTED"`))
	}
	return &providers{config: config, stop: stop}, nil
}

// Close ends the connections to KMS plugins.
func (k *Keys) Close() {
	if k == nil {
		return
	}
	if k.local != nil {
		k.local.stop()
	}
	if p := k.inUse.Load(); p != nil {
		p.stop()
	}
}

// Run reads the file again when it changes, until the context ends. A file that cannot be used, or whose KMS plugins cannot be
// reached, changes nothing.
func (k *Keys) Run(ctx context.Context, every time.Duration) error {
	if k.o.File == "" || !k.o.Reload {
		<-ctx.Done()
		return ctx.Err()
	}
	outcome := k.o.Outcome
	if outcome == nil {
		outcome = func(error) {}
	}
	count := func(err error) {
		if err != nil {
			metrics.RecordEncryptionConfigAutomaticReloadFailure("")
		} else {
			metrics.RecordEncryptionConfigAutomaticReloadSuccess("", k.inUse.Load().config.EncryptionFileContentHash)
		}
		outcome(err)
	}
	f := reload.File{Path: k.o.File, Content: k.content, Outcome: count, Load: func(_ context.Context, content []byte) error {
		next, err := load(k.o.File, true)
		if err != nil {
			return err
		}
		if err := errors.Join(reload.Unchanged(k.o.File, nil, content), next.healthy()); err != nil {
			next.stop()
			return fmt.Errorf("%w: %w", err, reload.ErrLater)
		}
		k.use(next)
		return nil
	}}
	return f.Run(ctx, every)
}

// use makes providers those in use. Requests that use the former ones are let finish.
func (k *Keys) use(next *providers) {
	former := k.inUse.Swap(next)
	if former != k.local {
		time.AfterFunc(max(former.config.KMSCloseGracePeriod, 10*time.Second), former.stop)
	}
}

// Health returns why a KMS plugin cannot be used, as in kube-apiserver's check kms-providers.
func (k *Keys) Health() error { return k.inUse.Load().healthy() }

// Wait waits until all KMS plugins can be used, or the context ends. Nothing that is sealed can be read before.
func (k *Keys) Wait(ctx context.Context) error {
	var told time.Time
	for {
		err := k.Health()
		if err == nil {
			return nil
		}
		if time.Since(told) >= time.Minute {
			told = time.Now()
			k.o.Logger.Warn("the start waits for the KMS plugins of --encryption-provider-config", "error", err)
		}
		if err := steady.Wait(ctx, time.Second); err != nil {
			return err
		}
	}
}

func (p *providers) healthy() error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "/healthz", nil)
	if err != nil {
		return err
	}
	var errs []error
	for _, check := range p.config.HealthChecks {
		errs = append(errs, check.Check(request))
	}
	return errors.Join(errs...)
}

// secrets is the kind whose providers seal sensitive contents of kinds that the file does not name.
var secrets = schema.GroupResource{Resource: "secrets"}

// transformer returns what seals and opens contents of a kind.
func (p *providers) transformer(of eventlog.Kind) value.Transformer {
	all := encryptionconfig.StaticTransformers(p.config.Transformers)
	named := schema.GroupResource{Group: of.Group, Resource: of.Resource}
	if of.Sensitive && !p.names(named) {
		named = secrets
	}
	return all.TransformerForResource(named)
}

// names reports whether the file has providers for a resource.
func (p *providers) names(of schema.GroupResource) bool {
	for _, as := range []schema.GroupResource{of, {Group: of.Group, Resource: "*"}, {Group: "*", Resource: "*"}} {
		if p.config.Transformers[as] != nil {
			return true
		}
	}
	return false
}

// prefix begins all that is sealed.
const prefix = "k8s:enc:"

// Seals implements [eventlog.Keys].
func (k *Keys) Seals(of eventlog.Kind) bool {
	p := k.inUse.Load()
	if known := p.seals.Load(); known != nil {
		if seals, is := (*known)[of]; is {
			return seals
		}
	}
	seals, err := p.findSeals(of)
	if err != nil {
		return true // the write is refused
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	known := map[eventlog.Kind]bool{of: seals}
	if before := p.seals.Load(); before != nil && len(*before) < maxKinds {
		maps.Copy(known, *before)
	}
	p.seals.Store(&known)
	return seals
}

// maxKinds bounds the kinds that are remembered.
const maxKinds = 10_000

// findSeals finds out whether contents of a kind are sealed.
func (p *providers) findSeals(of eventlog.Kind) (bool, error) {
	if !of.Sensitive && !p.names(schema.GroupResource{Group: of.Group, Resource: of.Resource}) {
		return false, nil
	}
	sealed, err := p.transformer(of).TransformToStorage(context.Background(), []byte("probe"), dataContext(of))
	return bytes.HasPrefix(sealed, []byte(prefix)), err
}

// Seal implements [eventlog.Keys].
func (k *Keys) Seal(ctx context.Context, of eventlog.Kind, plain []byte) (string, []byte, error) {
	sealed, err := k.inUse.Load().transformer(of).TransformToStorage(ctx, plain, dataContext(of))
	if err != nil {
		return "", nil, err
	}
	id := keyID(sealed)
	if id == "" {
		return "", nil, errors.New("the configuration of encryption has changed meanwhile; try again")
	}
	return id, sealed, nil
}

// dataContext returns what a sealed content is bound to: its kind. It has few values, because providers keep a derived key for each. The
// log binds a content to its place, by its hash.
func dataContext(of eventlog.Kind) value.Context {
	return value.DefaultContext(schema.GroupResource{Group: of.Group, Resource: of.Resource}.String())
}

// keyID returns the part of a sealed content that names its provider and its key: "k8s:enc:aesgcm:v1:NAME". It is "" if
// there is none.
func keyID(sealed []byte) string {
	if !bytes.HasPrefix(sealed, []byte(prefix)) {
		return ""
	}
	parts := bytes.SplitN(sealed, []byte(":"), 6)
	if len(parts) < 6 {
		return ""
	}
	return strings.ToValidUTF8(string(bytes.Join(parts[:5], []byte(":"))), "?")
}

// Open implements [eventlog.Keys].
func (k *Keys) Open(ctx context.Context, of eventlog.Kind, id string, sealed []byte) (plain []byte, stale bool, err error) {
	now := k.inUse.Load()
	plain, stale, err = now.transformer(of).TransformFromStorage(ctx, sealed, dataContext(of))
	if err == nil {
		return plain, stale, nil
	}
	if now.mayOpen(id, err) {
		return nil, false, &openError{id, err, true} // to ask its plugin again for each other kind would take as long each time
	}
	// What was written when the file was another one may be of a kind that it does not name now, or under the local key.
	for _, other := range now.others(k.local) {
		if plain, _, e := other.TransformFromStorage(ctx, sealed, dataContext(of)); e == nil {
			return plain, true, nil
		}
	}
	return nil, false, &openError{id, err, false}
}

// others returns all transformers of the file and of the local one.
func (p *providers) others(local *providers) []value.Transformer {
	all := slices.Collect(maps.Values(p.config.Transformers))
	if local != nil && local != p {
		all = slices.AppendSeq(all, maps.Values(local.config.Transformers))
	}
	return all
}

// mayOpen reports whether the file names the KMS plugin with a key, and only that plugin has failed.
func (p *providers) mayOpen(id string, err error) bool {
	return strings.HasPrefix(id, prefix+"kms:") && !strings.Contains(err.Error(), noProvider)
}

// noProvider is what the library says of a content under a provider that the kind does not have.
const noProvider = "no matching prefix found"

// openError says why a content cannot be opened.
type openError struct {
	id        string
	err       error
	temporary bool
}

func (e *openError) Error() string {
	if e.temporary {
		return fmt.Sprintf("the KMS plugin does not open it: %v", e.err)
	}
	return fmt.Sprintf("no key of --encryption-provider-config, nor the one in %s of the folder of keys, opens it: use the file of the server that wrote it (%v)", LocalFile, e.err)
}

// Unwrap returns the error of the provider.
func (e *openError) Unwrap() error { return e.err }

// Temporary implements [eventlog.Keys].
func (k *Keys) Temporary(err error) bool {
	var open *openError
	return errors.As(err, &open) && open.temporary
}

// OpenIn opens the keys for a command that reads what a server has stored: those of a file, and the local ones in a folder of keys.
// It returns nil if there are none, on which [Keys.OfLog] and [Keys.Close] may be called.
func OpenIn(folder, file string) (*Keys, error) {
	o := Options{File: file}
	if local := LocalIn(folder); folder != "" {
		if _, err := os.Lstat(local); err == nil {
			o.LocalFile = local
		}
	}
	if o.File == "" && o.LocalFile == "" {
		return nil, nil
	}
	return Open(o)
}

// OfLog returns the keys as those of a log; nil for nil.
func (k *Keys) OfLog() eventlog.Keys {
	if k == nil {
		return nil
	}
	return k
}
