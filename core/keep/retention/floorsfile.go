package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

// RecordsFile has, by plural.group, the revisions before which records of changes may be erased. Without it only the index
// of the history remembers them.
const RecordsFile = "records.json"

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

// write writes the floors to a file.
func (f Floors) write(file string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(file, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("save how far the past is erased: %w", err)
	}
	return nil
}

// readRecords reads the floors of records in a folder; they are empty if there is no file.
func readRecords(dir string) (Floors, error) {
	file := filepath.Join(dir, RecordsFile)
	data, err := os.ReadFile(file)
	floors := Floors{}
	if errors.Is(err, fs.ErrNotExist) {
		return floors, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &floors)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; delete it", file, err)
	}
	return floors, nil
}

// Reached are the floors of a kind: of the contents of versions, and of the records of changes.
type Reached struct {
	Contents uint64 `json:"contents,omitempty"`
	Records  uint64 `json:"records,omitempty"`
}

// readFiles reads the floors in a folder. If there is no file, those that the log has recorded count for the kinds of segments of which
// something was erased; without a record, those of [ReadFloors]. log is nil for none.
func readFiles(ctx context.Context, dir string, segments []segment.Info, log Values) (contents, records Floors, err error) {
	if contents, err = ReadFloors(dir, segments); err != nil {
		return nil, nil, err
	}
	if records, err = readRecords(dir); err != nil || log == nil {
		return contents, records, err
	}
	if _, err := os.Lstat(filepath.Join(dir, FloorsFile)); !errors.Is(err, fs.ErrNotExist) {
		return contents, records, err
	}
	limits, text, err := recorded(ctx, log)
	if err != nil || text == nil {
		return contents, records, err
	}
	for kind := range contents {
		contents[kind], records[kind] = limits[kind].Contents, limits[kind].Records
	}
	return contents, records, nil
}

// RaiseFiles raises the floors in a folder, by plural.group, to those of another replica, whose segments are to be used.
// segments are those of this replica, and log has recorded floors; nil for none. It is for the start: a running [Eraser] has
// [Eraser.Adopt].
func RaiseFiles(ctx context.Context, dir string, segments []segment.Info, others map[string]Reached, log Values) error {
	contents, records, err := readFiles(ctx, dir, segments, log)
	if err != nil {
		return err
	}
	for kind, other := range others {
		contents[kind], records[kind] = max(contents[kind], other.Contents), max(records[kind], other.Records)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return errors.Join(contents.write(filepath.Join(dir, FloorsFile)), records.write(filepath.Join(dir, RecordsFile)))
}

// Restore compares the segments with what the log has recorded of them, and tells the history the floors that were reached. It MUST be
// called before the first read of the past.
func (e *Eraser) Restore(ctx context.Context) error {
	floors, records, err := readFiles(ctx, e.Dir, e.Archive.Segments(), e.Values)
	if err != nil {
		return err
	}
	if err := errors.Join(e.checkFiles(ctx, floors, records), e.compare(ctx)); err != nil {
		return err
	}
	e.mu.Lock()
	e.saved.Store(&floors)
	for name, contents := range floors {
		e.reached[schema.ParseGroupResource(name)] = floor{contents, min(records[name], contents)}
	}
	reached := maps.Clone(e.reached)
	e.mu.Unlock()
	return e.tell(ctx, reached)
}

// tell tells the history floors. While its index is made again, they hold, too.
func (e *Eraser) tell(ctx context.Context, floors map[schema.GroupResource]floor) error {
	for r, f := range floors {
		if err := e.forget(ctx, r, f); err != nil && !errors.Is(err, history.ErrBehind) {
			return err
		}
	}
	return nil
}

// Adopt raises the floors to those of another replica, by plural.group, before segments are used that this one has
// rewritten. It is safe for concurrent use.
func (e *Eraser) Adopt(ctx context.Context, others map[string]Reached) error {
	floors := make(map[schema.GroupResource]floor, len(others))
	for name, other := range others {
		floors[schema.ParseGroupResource(name)] = floor{other.Contents, min(other.Records, other.Contents)}
	}
	if err := e.save(floors); err != nil {
		return err
	}
	return e.tell(ctx, floors)
}

// Reached returns the floors by plural.group. It is safe for concurrent use.
func (e *Eraser) Reached() map[string]Reached {
	e.mu.Lock()
	defer e.mu.Unlock()
	floors := make(map[string]Reached, len(e.reached))
	for r, f := range e.reached {
		floors[r.String()] = Reached{f.history, f.records}
	}
	return floors
}

// checkFiles returns an error if the files have floors that the log has not recorded.
func (e *Eraser) checkFiles(ctx context.Context, contents, records Floors) error {
	if e.Values == nil {
		return nil
	}
	files := map[string]Reached{}
	for kind, floor := range contents {
		files[kind] = Reached{floor, min(records[kind], floor)}
	}
	err := CheckRecorded(ctx, e.Values, files)
	if errors.As(err, new(*UnrecordedFloorError)) {
		return fmt.Errorf("%s and %s were changed: %w; delete both: what the log has recorded then counts", filepath.Join(e.Dir, FloorsFile), RecordsFile, err)
	}
	return err
}

// raise records the floors, saves them, and tells the history.
func (e *Eraser) raise(ctx context.Context, floors map[schema.GroupResource]floor) error {
	reached := e.Reached()
	for r, f := range floors {
		was := reached[r.String()]
		reached[r.String()] = Reached{max(was.Contents, f.history), max(was.Records, f.records)}
	}
	if err := e.declare(ctx, reached); err != nil {
		return err
	}
	if e.Values != nil {
		if err := recordFloors(ctx, e.Values, reached); err != nil {
			return err
		}
	}
	if err := e.save(floors); err != nil {
		return err
	}
	for r, f := range floors {
		if err := e.forget(ctx, r, f); err != nil {
			return err
		}
	}
	return nil
}

// save raises the floors that were reached, and writes them to the files.
func (e *Eraser) save(floors map[schema.GroupResource]floor) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	moved := false
	for r, f := range floors {
		was := e.reached[r]
		if now := (floor{max(was.history, f.history), max(was.records, f.records)}); now != was {
			e.reached[r], moved = now, true
		}
	}
	if !moved {
		return nil
	}
	saved, records := make(Floors, len(e.reached)), make(Floors, len(e.reached))
	for r, f := range e.reached {
		saved[r.String()], records[r.String()] = f.history, f.records
	}
	if err := errors.Join(saved.write(filepath.Join(e.Dir, FloorsFile)), records.write(filepath.Join(e.Dir, RecordsFile))); err != nil {
		return err
	}
	e.saved.Store(&saved)
	return nil
}

// forget tells the history the floor of a kind. Afterwards its index does not need what is below the floor.
func (e *Eraser) forget(ctx context.Context, r schema.GroupResource, f floor) error {
	return e.History.Forget(ctx, r, history.Floors{Contents: f.history, Changes: f.records})
}
