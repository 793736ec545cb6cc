// Package delivery has the places from which `stele serve` takes policies: a folder that is watched, a git
// repository, and an OCI registry.
package delivery

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/core/resources/activation"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

const (
	// watchActor is the user in the log who activates saved policies.
	watchActor = activation.ServerActor + ":policy-watch"
	// watchQuiet is how long the watch waits after the last change of a file. Editors write a file several times,
	// and a checkout writes many files.
	watchQuiet = 300 * time.Millisecond
)

// Watch activates the bundle in a folder whenever a file of its module is saved. It is for development only,
// because every user who can write to the folder can change the policy. It is not safe for concurrent use.
type Watch struct {
	dir, root string
	compile   *compiling.Options
	plane     *plane.Plane // set by Begin
	out, err  io.Writer
	watcher   *fsnotify.Watcher
	folders   map[string]bool   // folders that are or were watched
	gone      bool              // a message said that the folder does not exist
	tried     [sha256.Size]byte // digest of the newest source that was read, whatever its outcome
}

// WatchFolder watches all folders of the module that dir belongs to, and the folder that contains the module, because
// a checkout may replace the whole module. source has been read from dir.
func WatchFolder(dir string, source *bundles.Source, compile *compiling.Options, out, err io.Writer) (*Watch, error) {
	abs, absErr := filepath.Abs(dir)
	if absErr != nil {
		return nil, absErr
	}
	watcher, newErr := fsnotify.NewWatcher()
	if newErr != nil {
		return nil, newErr
	}
	w := &Watch{dir: dir, root: abs, compile: compile, out: out, err: err, watcher: watcher, folders: map[string]bool{}}
	if source.Package != "." {
		w.root = strings.TrimSuffix(abs, filepath.FromSlash("/"+source.Package))
	}
	parentErr := watcher.Add(filepath.Dir(w.root))
	if parentErr != nil {
		parentErr = fmt.Errorf("watch %s: %w", filepath.Dir(w.root), parentErr)
	}
	if err := errors.Join(parentErr, w.add(w.root)); err != nil {
		watcher.Close()
		return nil, err
	}
	return w, nil
}

// Begin activates the bundle, unless the start of the server has just done so.
func (w *Watch) Begin(ctx context.Context, p *plane.Plane, source *bundles.Source, activated *compile.Result) error {
	w.plane = p
	if activated != nil {
		show.Warn(w.err, activated)
		w.tried = source.Digest()
		return nil
	}
	w.save(ctx)
	return nil
}

// add watches a folder and the folders below it, except those that cannot be part of a module. It
// ignores files, and folders that no longer exist.
func (w *Watch) add(folder string) error {
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		case path != w.root && strings.ContainsAny(d.Name()[:1], "._"):
			return fs.SkipDir
		}
		// The watch begins before the entries are read, so that none is missed.
		if err := w.watcher.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("watch %s: %w", path, err)
		}
		w.folders[path] = true
		return nil
	})
}

// Run activates the bundle whenever a file is saved, until the context ends.
func (w *Watch) Run(ctx context.Context, _ *plane.Plane) error {
	defer w.watcher.Close()
	quiet := time.NewTimer(watchQuiet)
	defer quiet.Stop()
	for {
		select {
		case e := <-w.watcher.Events:
			if !w.isInModule(e.Name) {
				continue // outside of the module
			}
			if e.Has(fsnotify.Create) {
				if err := w.add(e.Name); err != nil {
					w.complain(err)
				}
			}
			// Other files are ignored: a data directory in the module changes all the time.
			if e.Op != fsnotify.Chmod && (bundles.IsSource(e.Name) || w.folders[e.Name]) {
				quiet.Reset(watchQuiet)
			}
		case err := <-w.watcher.Errors:
			// Events may have been lost, also those of new folders.
			w.complain(errors.Join(err, w.add(w.root)))
			quiet.Reset(watchQuiet)
		case <-quiet.C:
			w.save(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isInModule reports whether a path is the module's folder or in it.
func (w *Watch) isInModule(path string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(w.root, string(filepath.Separator)))
	return ok && (rest == "" || rest[0] == filepath.Separator)
}

// save activates the bundle as it is now, unless it has been tried before. If the bundle has errors, the policy in
// force stays.
func (w *Watch) save(ctx context.Context) {
	if _, err := os.Stat(w.dir); errors.Is(err, fs.ErrNotExist) {
		if !w.gone {
			w.complain(errors.New("the folder is gone; waiting for it to come back"))
		}
		w.gone = true
		return
	}
	w.gone = false
	source, err := bundles.ReadDir(w.dir)
	if err != nil {
		w.complain(err)
		return
	}
	digest := source.Digest()
	if digest == w.tried {
		return
	}
	w.tried = digest
	compiled, diags, err := w.compile.Compile(ctx, source)
	if err == nil && len(diags) == 0 {
		diags = w.plane.Enforceable(ctx, compiled)
	}
	if len(diags) > 0 {
		err = show.ErrDiagnostics(w.err, source, diags, w.dir)
	}
	if err != nil {
		w.stays(ctx, err)
		return
	}
	show.Warn(w.err, compiled)
	if err := w.warnDropped(ctx, compiled); err != nil {
		w.stays(ctx, err)
		return
	}
	for {
		digest := activation.Proposal(compiled, "").Digest
		revision, err := activation.ActivateCompiled(ctx, w.plane.Committer, compiled, watchActor)
		var stale *commit.Stale
		var renamed *activation.Renamed
		switch {
		case errors.As(err, &stale):
			continue // another policy was activated meanwhile
		case errors.Is(err, activation.ErrInForce):
			fmt.Fprintf(w.out, "Policy %.12s is in force already, since revision %d.\n", digest, w.plane.Committer.Tip().ActivationRevision())
		case errors.As(err, &renamed):
			w.stays(ctx, fmt.Errorf("%w; if that is meant, `stele policy push --rename %s`", renamed, w.dir))
		case err != nil:
			w.stays(ctx, err)
		default:
			fmt.Fprintf(w.out, "Policy %.12s is in force since revision %d.\n", digest, revision)
		}
		return
	}
}

// warnDropped prints the fields of stored objects that the bundle's schemas do not have. Objects
// keep these fields. It returns an [*activation.Unconvertible] if stored objects cannot be converted.
func (w *Watch) warnDropped(ctx context.Context, compiled *compile.Result) error {
	dropped, err := activation.FieldsDropped(ctx, w.plane.Committer.Tip(), compiled.Form, func() (*policy.Policy, error) {
		return w.plane.Committer.Load(activation.Proposal(compiled, ""))
	})
	if unconvertible := (*activation.Unconvertible)(nil); errors.As(err, &unconvertible) {
		return unconvertible
	}
	if err != nil {
		w.complain(err)
	}
	for _, d := range dropped.First() {
		fmt.Fprintf(w.err, "warning: %s\n", d)
	}
	if n := len(dropped) - len(dropped.First()); n > 0 {
		fmt.Fprintf(w.err, "warning: %d more fields are not in the new schema\n", n)
	}
	return nil
}

// stays prints why the bundle was not activated, and which policy stays in force.
func (w *Watch) stays(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the server stops
	}
	active := w.plane.Committer.Tip().Policies.Active
	w.complain(fmt.Errorf("%w; policy %.12s stays in force, since revision %d", err, active.Digest, w.plane.Committer.Tip().ActivationRevision()))
}

func (w *Watch) complain(err error) { fmt.Fprintf(w.err, "stele: policy watch: %v\n", err) }
