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
	"stele.dev/stele/projections/history"
)

// floorsFile has the floors of all kinds, by plural.group. It is written before anything is erased, so that an index
// of the history that is made again knows how far back it can answer.
const floorsFile = "floors.json"

// Restore tells the history the floors that were reached. It MUST be called before the first read of the past. If
// the file is missing, for example after a restore, the floors are after the last segment of which something was
// erased.
func (e *Eraser) Restore(ctx context.Context) error {
	file := filepath.Join(e.Dir, floorsFile)
	data, err := os.ReadFile(file)
	saved := map[string]uint64{}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		for _, s := range e.Archive.Segments() {
			for _, g := range s.Groups {
				if r := groupResource(&g); s.Generation > 0 && !r.Empty() {
					saved[r.String()] = s.Last
				}
			}
		}
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(data, &saved); err != nil {
			return fmt.Errorf("%s is damaged: %w; delete it: all that was erased of in part is then treated as erased", file, err)
		}
	}
	for name, contents := range saved {
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
		saved := make(map[string]uint64, len(e.reached))
		for r, contents := range e.reached {
			saved[r.String()] = contents
		}
		text, err := json.MarshalIndent(saved, "", "  ")
		if err != nil {
			return err
		}
		if err := renameio.WriteFile(filepath.Join(e.Dir, floorsFile), append(text, '\n'), 0o600); err != nil {
			return fmt.Errorf("save how far the past is erased: %w", err)
		}
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
