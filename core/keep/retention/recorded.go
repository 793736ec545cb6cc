package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"stele.dev/stele/eventlog"
)

// Values are the values beside the batches of a log: those of [eventlog.Log]. One of them, [eventlog.FloorsValue], has the floors of all
// kinds. It is raised before anything is erased, so it is never below the floors of any replica. Whoever can write to a bucket or to the files of a
// replica cannot raise it.
type Values interface {
	Value(ctx context.Context, name string) ([]byte, error)
	SwapValue(ctx context.Context, name string, from, to []byte) (bool, error)
}

// UnrecordedFloorError reports a floor above the one that the log has recorded. No replica has written it.
type UnrecordedFloorError struct {
	What            string // versions or changes
	Kind            string // plural.group
	Floor, Recorded uint64
}

func (e *UnrecordedFloorError) Error() string {
	return fmt.Sprintf("%s of %s are said to be erased up to revision %d, and the log has recorded that they are up to revision %d", e.What, e.Kind, e.Floor, e.Recorded)
}

// recorded returns the floors that the log has recorded, and the value that has them; nil if it has recorded none.
func recorded(ctx context.Context, log Values) (floors map[string]Reached, text []byte, err error) {
	text, err = log.Value(ctx, eventlog.FloorsValue)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil, nil
	}
	if err != nil || text == nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(text, &floors); err != nil {
		return nil, nil, fmt.Errorf("the log's record of how far the past is erased cannot be read: %w", err)
	}
	return floors, text, nil
}

// recordFloors raises the floors that the log has recorded. It records them also if there are none.
func recordFloors(ctx context.Context, log Values, reached map[string]Reached) error {
	for {
		floors, was, err := recorded(ctx, log)
		if err != nil {
			return err
		}
		next := maps.Clone(floors)
		if next == nil {
			next = map[string]Reached{}
		}
		for kind, r := range reached {
			next[kind] = Reached{max(next[kind].Contents, r.Contents), max(next[kind].Records, r.Records)}
		}
		if was != nil && maps.Equal(floors, next) {
			return nil
		}
		text, err := json.Marshal(next)
		if err != nil {
			return err
		}
		swapped, err := log.SwapValue(ctx, eventlog.FloorsValue, was, text)
		if errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("record how far the past is erased: %w", err)
		}
		if swapped {
			return nil
		}
	}
}

// CheckRecorded returns an [*UnrecordedFloorError] if the log has recorded floors, and one of others is above them. A log whose past only
// former versions have erased has recorded none.
func CheckRecorded(ctx context.Context, log Values, others map[string]Reached) error {
	if len(others) == 0 {
		return nil
	}
	floors, text, err := recorded(ctx, log)
	if err != nil || text == nil {
		return err
	}
	for _, kind := range slices.Sorted(maps.Keys(others)) {
		switch is, has := others[kind], floors[kind]; {
		case is.Contents > has.Contents:
			return &UnrecordedFloorError{"versions", kind, is.Contents, has.Contents}
		case is.Records > has.Records:
			return &UnrecordedFloorError{"changes", kind, is.Records, has.Records}
		}
	}
	return nil
}
