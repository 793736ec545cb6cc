package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/projections/history"
)

// Folder is the folder below the data directory for the files of this package.
const Folder = "retention"

// FloorsFile has the floors of all kinds, by plural.group. It is written before anything is erased, so that an index
// of the history that is made again, and a fold of the whole log, know what may be missing.
const FloorsFile = "floors.json"

// Floors are the oldest revisions at which objects can be read, by plural.group.
type Floors map[string]uint64

// ReadFloors reads the floors in a folder. If the file is missing, they are after the last segment of which something
// was erased, for all its kinds.
func ReadFloors(dir string, segments []segment.Info) (Floors, error) {
	file := filepath.Join(dir, FloorsFile)
	data, err := os.ReadFile(file)
	floors := Floors{}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		for _, s := range segments {
			for _, g := range s.Groups {
				if r := groupResource(&g); s.Generation > 0 && !r.Empty() {
					floors[r.String()] = s.Last
				}
			}
		}
	case err != nil:
		return nil, err
	default:
		if err := json.Unmarshal(data, &floors); err != nil {
			return nil, fmt.Errorf("%s is damaged: %w; delete it: all that was erased of in part is then treated as erased", file, err)
		}
	}
	return floors, nil
}

// ByKind returns the floors by resource, for [objects.Store.MayLack].
func (f Floors) ByKind() map[schema.GroupResource]uint64 {
	kinds := make(map[schema.GroupResource]uint64, len(f))
	for name, floor := range f {
		kinds[schema.ParseGroupResource(name)] = floor
	}
	return kinds
}

// write writes the floors to a folder.
func (f Floors) write(dir string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(dir, FloorsFile), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("save how far the past is erased: %w", err)
	}
	return nil
}

// Restore tells the history the floors that were reached. It MUST be called before the first read of the past.
func (e *Eraser) Restore(ctx context.Context) error {
	floors, err := ReadFloors(e.Dir, e.Archive.Segments())
	if err != nil {
		return err
	}
	e.saved.Store(&floors)
	for name, contents := range floors {
		r := schema.ParseGroupResource(name)
		e.reached[r] = contents
		if err := e.forget(ctx, r, floor{history: contents}); err != nil && !errors.Is(err, history.ErrBehind) {
			return err // while the index is made again, the floor holds, too
		}
	}
	return nil
}

// raise saves the floors, and tells the history.
func (e *Eraser) raise(ctx context.Context, floors map[schema.GroupResource]floor) error {
	moved := false
	for r, f := range floors {
		if f.history > e.reached[r] {
			e.reached[r], moved = f.history, true
		}
	}
	if moved {
		saved := make(Floors, len(e.reached))
		for r, contents := range e.reached {
			saved[r.String()] = contents
		}
		if err := saved.write(e.Dir); err != nil {
			return err
		}
		e.saved.Store(&saved)
	}
	for r, f := range floors {
		if err := e.forget(ctx, r, f); err != nil {
			return err
		}
	}
	return nil
}

// forget tells the history the floor of a kind. Afterwards its index does not need what is below the floor.
func (e *Eraser) forget(ctx context.Context, r schema.GroupResource, f floor) error {
	return e.History.Forget(ctx, r, history.Floors{Contents: f.history, Changes: f.records})
}
