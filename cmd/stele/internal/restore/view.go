package restore

import (
	"encoding/json"
	"fmt"

	"stele.dev/stele/cmd/stele/internal/secrets"
	"stele.dev/stele/core/difference"
)

// View is an item as programs read it.
type View struct {
	Action      Action             `json:"action"`
	Group       string             `json:"group,omitempty"`
	Version     string             `json:"version"`
	Kind        string             `json:"kind"`
	Resource    string             `json:"resource"`
	Namespace   string             `json:"namespace,omitempty"`
	Name        string             `json:"name"`
	Differences []difference.Entry `json:"differences,omitempty"`
	Notes       []string           `json:"notes,omitempty"`
	Missing     []string           `json:"missing,omitempty"`
	Refused     string             `json:"refused,omitempty"`
	Revisions   []string           `json:"revisions,omitempty"`
	Failed      string             `json:"failed,omitempty"`
}

// View shows the item, without what is secret.
func (i *Item) View() View {
	v := View{
		Action: i.Action, Group: i.Kind.Group, Version: i.Kind.Version, Kind: i.Kind.Kind, Resource: i.Kind.Resource,
		Namespace: i.Namespace, Name: i.Name, Notes: i.Notes, Missing: i.Missing, Refused: i.Refused, Revisions: i.Revisions, Failed: i.Failed,
	}
	if i.Action == Update {
		v.Differences = i.hidden().Differences(i.Differences)
	}
	return v
}

// hidden returns the fields that are not shown: what a Secret holds, too.
func (i *Item) hidden() secrets.Fields { return i.Secrets.With(secrets.Of(i.Kind.GroupKind(), nil)) }

// show is a value at a path, on a line.
func (i *Item) show(path string, value any) string {
	return Show(i.hidden().Value(path, value))
}

// Show is a value on a line.
func Show(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(b)
}
