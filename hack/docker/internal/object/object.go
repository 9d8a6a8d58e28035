// Package object reads and writes JSON objects without touching what it was
// not asked to change: members keep their order and their raw text, so unknown
// fields, large numbers and unusual escapes survive.
package object

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Member is one key of an object with the raw text of its value.
type Member struct {
	Key   string
	Value json.RawMessage
}

// Object is a JSON object in the order of its source.
type Object []Member

// Parse reads exactly one JSON object.
func Parse(data []byte) (Object, error) {
	// Valid first: the token reader below stops at the end of the object and
	// would accept garbage behind it.
	if !json.Valid(data) {
		var v any
		if err := json.Unmarshal(data, &v); err != nil {
			return nil, err
		}
		return nil, errors.New("not valid JSON")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	if tok != json.Delim('{') {
		return nil, fmt.Errorf("expected a JSON object, found %.20s", bytes.TrimSpace(data))
	}
	obj := Object{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key, ok := tok.(string)
		if !ok {
			return nil, fmt.Errorf("expected a key, found %v", tok)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		obj = append(obj, Member{key, value})
	}
	if _, err := dec.Token(); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return obj, nil
}

// Get returns the raw value of key, nil when there is none. Of a key that is
// there twice the last one counts, as for every decoder of Go.
func (o Object) Get(key string) json.RawMessage {
	if i := o.last(key); i >= 0 {
		return o[i].Value
	}
	return nil
}

// Set replaces the value of key in place, or appends it.
func (o *Object) Set(key string, value json.RawMessage) {
	if i := o.last(key); i >= 0 {
		(*o)[i].Value = value
		return
	}
	*o = append(*o, Member{key, value})
}

// Delete removes key.
func (o *Object) Delete(key string) {
	*o = slices.DeleteFunc(*o, func(m Member) bool { return m.Key == key })
}

func (o Object) last(key string) int {
	for i, m := range slices.Backward(o) {
		if m.Key == key {
			return i
		}
	}
	return -1
}

// Bytes joins the members again; values are copied as they are.
func (o Object) Bytes() []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(String(m.Key))
		b.WriteByte(':')
		b.Write(m.Value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// String encodes s as a JSON string, without escapes for HTML.
func String(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return bytes.TrimSpace(b.Bytes())
}
