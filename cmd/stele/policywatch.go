package main

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
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/core"
	"stele.dev/stele/core/activation"
	"stele.dev/stele/core/bootstrap"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/policy"
)

const (
	// policyWatchActor is in whose name saved policies come in force.
	policyWatchActor = bootstrap.Actor + ":policy-watch"
	// policyWatchQuiet is for how long nothing must have changed: an editor writes more
	// than once, and half of a checkout is no policy.
	policyWatchQuiet = 300 * time.Millisecond
)

// policyWatch puts the bundle in a folder in force whenever its module is saved. It is for
// development: whoever can write to the folder is the law. One goroutine at a time calls
// its methods.
type policyWatch struct {
	dir, root string
	committer *commit.Committer
	compile   *compileOptions
	enforce   core.Enforceable
	out, err  io.Writer
	watcher   *fsnotify.Watcher
	folders   map[string]bool   // that are, or were, watched
	gone      bool              // the folder is, and that was said
	tried     [sha256.Size]byte // the source that was read last, whatever came of it
}

// watchPolicy watches all folders of the module that a folder belongs to, of which source
// has been read, and the one that the module is in: a checkout may replace all of it.
func watchPolicy(dir string, source *policy.Source, c *commit.Committer, compile *compileOptions, enforceable core.Enforceable, out, err io.Writer) (*policyWatch, error) {
	abs, absErr := filepath.Abs(dir)
	if absErr != nil {
		return nil, absErr
	}
	watcher, newErr := fsnotify.NewWatcher()
	if newErr != nil {
		return nil, newErr
	}
	w := &policyWatch{dir: dir, root: abs, committer: c, compile: compile, enforce: enforceable, out: out, err: err, watcher: watcher, folders: map[string]bool{}}
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

func (w *policyWatch) close() { w.watcher.Close() }

// add watches a folder and all that are in it, but for those that are no part of a module.
// What is no folder, or is gone, needs no watch.
func (w *policyWatch) add(folder string) error {
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
		// Watched before its entries are read: what comes later is an event.
		if err := w.watcher.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("watch %s: %w", path, err)
		}
		w.folders[path] = true
		return nil
	})
}

// run activates what is saved until the context ends.
func (w *policyWatch) run(ctx context.Context) error {
	quiet := time.NewTimer(policyWatchQuiet)
	defer quiet.Stop()
	for {
		select {
		case e := <-w.watcher.Events:
			if !w.within(e.Name) {
				continue // it is beside the module
			}
			if e.Has(fsnotify.Create) {
				if err := w.add(e.Name); err != nil {
					w.complain(err)
				}
			}
			// The data of a server that is in the module, too, changes all the time.
			if e.Op != fsnotify.Chmod && (policy.IsSource(e.Name) || w.folders[e.Name]) {
				quiet.Reset(policyWatchQuiet)
			}
		case err := <-w.watcher.Errors:
			// Events may have got lost, those of new folders among them.
			w.complain(errors.Join(err, w.add(w.root)))
			quiet.Reset(policyWatchQuiet)
		case <-quiet.C:
			w.save(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// within tells whether a path is the module's folder, or in it.
func (w *policyWatch) within(path string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(w.root, string(filepath.Separator)))
	return ok && (rest == "" || rest[0] == filepath.Separator)
}

// save puts the folder in force as it is now, unless that has been tried. If it cannot be,
// what is in force stays.
func (w *policyWatch) save(ctx context.Context) {
	if _, err := os.Stat(w.dir); errors.Is(err, fs.ErrNotExist) {
		if !w.gone {
			w.complain(errors.New("the folder is gone; waiting for it to come back"))
		}
		w.gone = true
		return
	}
	w.gone = false
	source, err := policy.ReadDir(w.dir)
	if err != nil {
		w.complain(err)
		return
	}
	digest := source.Digest()
	if digest == w.tried {
		return
	}
	w.tried = digest
	compiled, diags, err := w.compile.compile(ctx, source)
	if err == nil && len(diags) == 0 {
		diags = w.enforce(ctx, compiled)
	}
	if len(diags) > 0 {
		err = show.ErrDiagnostics(w.err, source, diags, w.dir)
	}
	if err != nil {
		w.stays(ctx, err)
		return
	}
	show.Warn(w.err, compiled)
	w.warnDropped(ctx, compiled)
	for {
		digest := activation.Proposal(compiled, "").Digest
		revision, err := bootstrap.Activate(ctx, w.committer, compiled, policyWatchActor)
		var stale *commit.Stale
		var renamed *activation.Renamed
		switch {
		case errors.As(err, &stale):
			continue // somebody else was quicker; the folder is to be in force all the same
		case errors.Is(err, activation.ErrInForce):
			fmt.Fprintf(w.out, "Policy %.12s is in force already, since revision %d.\n", digest, w.committer.Tip().PolicyRevision())
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

// warnDropped prints the fields of stored objects that the bundle does not show. While a bundle is being written they
// come and go: objects keep them.
func (w *policyWatch) warnDropped(ctx context.Context, compiled *policy.Compiled) {
	dropped, err := activation.FieldsDropped(ctx, w.committer.Tip(), compiled.Form, func() (*policy.Policy, error) {
		return w.committer.Load(activation.Proposal(compiled, ""))
	})
	if err != nil {
		w.complain(err)
	}
	for _, d := range dropped.First() {
		fmt.Fprintf(w.err, "warning: %s\n", d)
	}
	if n := len(dropped) - len(dropped.First()); n > 0 {
		fmt.Fprintf(w.err, "warning: %d more fields are not in the new schema\n", n)
	}
}

// stays says what kept a folder from coming in force.
func (w *policyWatch) stays(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the server stops
	}
	active := w.committer.Tip().Policies.Active
	w.complain(fmt.Errorf("%w; policy %.12s stays in force, since revision %d", err, active.Digest, w.committer.Tip().PolicyRevision()))
}

func (w *policyWatch) complain(err error) { fmt.Fprintf(w.err, "stele: policy watch: %v\n", err) }
