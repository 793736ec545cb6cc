package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Change returns a verdict that admits the write with a changed object. changed is a pointer to the struct that [Review.Decode]
// has filled in, and that the plugin has changed since. What the struct does not know of the object stays as it is.
func (r *Review) Change(changed any) (Verdict, error) {
	t := reflect.TypeOf(changed)
	if t == nil || t.Kind() != reflect.Pointer {
		return Verdict{}, errors.New("Change wants a pointer to a struct")
	}
	unchanged := reflect.New(t.Elem()).Interface()
	if err := r.Decode(unchanged); err != nil {
		return Verdict{}, err
	}
	was, err := asJSON(unchanged)
	if err != nil {
		return Verdict{}, err
	}
	is, err := asJSON(changed)
	if err != nil {
		return Verdict{}, err
	}
	stored, err := parseJSON(r.Object)
	if err != nil {
		return Verdict{}, err
	}
	var p patch
	p.change("", stored, was, is)
	if len(p) == 0 {
		return Admit(), nil
	}
	text, err := json.Marshal(p)
	return Patch(text), err
}

// asJSON returns a value as decoded JSON.
func asJSON(value any) (any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("the changed object: %w", err)
	}
	return parseJSON(text)
}

func parseJSON(text []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return value, d.Decode(&value)
}

// patch is a JSON Patch, of operations.
type patch []any

type setting struct {
	Op    string `json:"op"` // add or replace
	Path  string `json:"path"`
	Value any    `json:"value"`
}

type removal struct {
	Op   string `json:"op"`
	Path string `json:"path"`
}

func (p *patch) add(path string, value any)     { *p = append(*p, setting{"add", path, value}) }
func (p *patch) replace(path string, value any) { *p = append(*p, setting{"replace", path, value}) }
func (p *patch) remove(path string)             { *p = append(*p, removal{"remove", path}) }

// change appends the operations that make of a stored value what was made of it in a struct: was is the stored value as the
// struct has it, is the changed one. stored may have fields that the struct does not know, and lacks those that only the
// struct has, with zero values.
func (p *patch) change(path string, stored, was, is any) {
	if reflect.DeepEqual(was, is) {
		return
	}
	storedMap, ok := stored.(map[string]any)
	wasMap, wasOK := was.(map[string]any)
	isMap, isOK := is.(map[string]any)
	if ok && wasOK && isOK {
		p.changeMap(path, storedMap, wasMap, isMap)
		return
	}
	storedList, ok := stored.([]any)
	wasList, wasOK := was.([]any)
	isList, isOK := is.([]any)
	if ok && wasOK && isOK && len(storedList) == len(wasList) {
		p.changeList(path, storedList, wasList, isList)
		return
	}
	p.replace(path, is)
}

func (p *patch) changeMap(path string, stored, was, is map[string]any) {
	var names []string
	for name := range was {
		names = append(names, name)
	}
	for name := range is {
		if _, both := was[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		old, had := was[name]
		value, has := is[name]
		at := path + "/" + escape(name)
		inner, exists := stored[name]
		switch {
		case !has && exists:
			p.remove(at)
		case !has || had && reflect.DeepEqual(old, value):
		case had && exists:
			p.change(at, inner, old, value)
		default:
			p.add(at, value)
		}
	}
}

// changeList keeps the elements that are equal at the beginning and at the end, and pairs those in between by their place.
func (p *patch) changeList(path string, stored, was, is []any) {
	from := 0
	for from < len(was) && from < len(is) && reflect.DeepEqual(was[from], is[from]) {
		from++
	}
	wasEnd, isEnd := len(was), len(is)
	for wasEnd > from && isEnd > from && reflect.DeepEqual(was[wasEnd-1], is[isEnd-1]) {
		wasEnd, isEnd = wasEnd-1, isEnd-1
	}
	both := min(wasEnd, isEnd)
	for i := from; i < both; i++ {
		p.change(path+"/"+strconv.Itoa(i), stored[i], was[i], is[i])
	}
	for i := wasEnd - 1; i >= both; i-- {
		p.remove(path + "/" + strconv.Itoa(i))
	}
	for i := both; i < isEnd; i++ {
		p.add(path+"/"+strconv.Itoa(i), is[i])
	}
}

// escape returns a name as a part of a JSON Pointer.
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
