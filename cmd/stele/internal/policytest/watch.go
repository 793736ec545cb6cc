package policytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/cobra"
	"stele.dev/stele/policy/bundles"
)

// quiet is how long the watch waits after the last change of a file: editors write a file several times.
const quiet = 300 * time.Millisecond

// runOnChange runs the tests, and again whenever a file of the modules is saved, until the context ends.
func (o *options) runOnChange(ctx context.Context, cmd *cobra.Command, args []string) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	for _, arg := range args {
		dir := strings.TrimSuffix(strings.TrimSuffix(arg, "..."), "/")
		dir = cmp.Or(dir, ".")
		source, err := bundles.ReadDir(dir)
		if err != nil {
			return err
		}
		root, _ := rootOf(dir, source)
		if err := watchFolders(watcher, root); err != nil {
			return err
		}
	}
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-watcher.Events:
			if e.Has(fsnotify.Create) {
				_ = watchFolders(watcher, e.Name) // it may be a folder, or gone
			}
			if e.Op != fsnotify.Chmod && bundles.IsSource(e.Name) {
				due.Reset(quiet)
			}
		case err := <-watcher.Errors:
			return fmt.Errorf("watch: %w", err)
		case <-due.C:
			if err := o.runOnce(ctx, cmd, args); err != nil && !errors.Is(err, errFailed) && ctx.Err() == nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "stele:", err)
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "waiting for changes")
		}
	}
}

// watchFolders watches a folder and those below it, except those that CUE ignores.
func watchFolders(watcher *fsnotify.Watcher, folder string) error {
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		case path != folder && strings.ContainsAny(d.Name()[:1], "._"):
			return fs.SkipDir
		}
		return watcher.Add(path)
	})
}
