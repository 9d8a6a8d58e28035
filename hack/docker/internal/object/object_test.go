package object

import "testing"

func TestUntouchedTextSurvives(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"order", `{"z":1,"a":2,"m":3}`, `{"z":1,"a":2,"m":3}`},
		{"large numbers", `{"n":9223372036854775808,"f":1.50e+3}`, `{"n":9223372036854775808,"f":1.50e+3}`},
		{"escapes", `{"s":"\u003c<&\u00e9\/","k<\"":0}`, `{"s":"\u003c<&\u00e9\/","k<\"":0}`},
		{"space inside values", `{ "a" : { "b" : [ 1 ] } }`, `{"a":{ "b" : [ 1 ] }}`},
		{"empty", ` {} `, `{}`},
		{"key twice", `{"a":1,"a":2}`, `{"a":1,"a":2}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			obj, err := Parse([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(obj.Bytes()); got != tt.want {
				t.Errorf("Bytes = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	for _, in := range []string{"", "[]", "null", "1", `{"a":1`, `{"a":1} x`, `{"a":1,}`, "{'a':1}", "# comment\n{}"} {
		if obj, err := Parse([]byte(in)); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", in, obj)
		}
	}
}

func TestMembers(t *testing.T) {
	obj, err := Parse([]byte(`{"a":1,"b":2,"a":3}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(obj.Get("a")); got != "3" {
		t.Errorf("Get(a) = %s, want the last, 3", got)
	}
	if obj.Get("c") != nil {
		t.Errorf("Get(c) = %s, want nil", obj.Get("c"))
	}
	obj.Set("b", []byte(`"x"`))
	obj.Set("c", String("<new>"))
	obj.Delete("a")
	if got, want := string(obj.Bytes()), `{"b":"x","c":"<new>"}`; got != want {
		t.Errorf("Bytes = %s, want %s", got, want)
	}
}
