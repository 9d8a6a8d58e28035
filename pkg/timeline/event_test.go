package timeline

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

func TestEventKeepsEverythingOnDisk(t *testing.T) {
	for name, tc := range map[string]struct {
		event Event
		want  string
	}{
		"only what is needed": {
			Event{Source: "run", Type: "Phase"},
			`{"at":0.000000,"source":"run","type":"Phase"}`,
		},
		"all fields": {
			Event{At: 1234567 * time.Microsecond, Stamp: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Source: "audit", Type: "update",
				Object: "leases worker", Detail: map[string]string{"code": "200", "agent": "kubelet"}},
			`{"at":1.234567,"stamp":"2026-01-02T03:04:05.000006Z","source":"audit","type":"update","object":"leases worker","detail":{"agent":"kubelet","code":"200"}}`,
		},
		"a stamp of another zone is written in UTC": {
			Event{Source: "node", Type: "Process", Stamp: time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))},
			`{"at":0.000000,"stamp":"2026-01-02T02:04:05Z","source":"node","type":"Process"}`,
		},
		"months of microseconds do not lose one": {
			Event{At: 300*24*time.Hour + time.Microsecond, Source: "run", Type: "Phase"},
			`{"at":25920000.000001,"source":"run","type":"Phase"}`,
		},
		"before the start": {
			Event{At: -1500 * time.Millisecond, Source: "run", Type: "Phase"},
			`{"at":-1.500000,"source":"run","type":"Phase"}`,
		},
		"quotes and line breaks stay on one line": {
			Event{Source: "run", Type: "Witness", Detail: map[string]string{"seen": "a \"b\"\nc"}},
			`{"at":0.000000,"source":"run","type":"Witness","detail":{"seen":"a \"b\"\nc"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(tc.event)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			var back Event
			if err := json.Unmarshal(got, &back); err != nil {
				t.Fatal(err)
			}
			if !back.Equal(tc.event) {
				t.Errorf("read back as %+v", back)
			}
		})
	}
}

func TestEventRefusesWhatIsNoFact(t *testing.T) {
	for name, tc := range map[string]struct{ line, want string }{
		"no source":      {`{"at":1,"type":"Gap"}`, "source and type"},
		"no type":        {`{"at":1,"source":"run"}`, "source and type"},
		"no time":        {`{"source":"run","type":"Gap"}`, "field at"},
		"endless time":   {`{"at":1e300,"source":"run","type":"Gap"}`, "within a year"},
		"time in words":  {`{"at":"soon","source":"run","type":"Gap"}`, "invalid number"},
		"stamp in words": {`{"at":1,"stamp":"noon","source":"run","type":"Gap"}`, "noon"},
		"a list":         {`[1]`, "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			e := Event{Object: "untouched"}
			err := json.Unmarshal([]byte(tc.line), &e)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
			if e.Object != "untouched" {
				t.Errorf("a refused line changed the event to %+v", e)
			}
		})
	}
}

func TestSecondsRoundToTheMicrosecond(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                                     "0.000000",
		499 * time.Nanosecond:                 "0.000000",
		500 * time.Nanosecond:                 "0.000001",
		time.Second - 400*time.Nanosecond:     "1.000000",
		-500 * time.Nanosecond:                "-0.000001",
		90*time.Minute + 250*time.Millisecond: "5400.250000",
	} {
		if got := Seconds(d); got != want {
			t.Errorf("Seconds(%d ns) = %s, want %s", d, got, want)
		}
	}
}

func TestParseSeconds(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0": 0, "1": time.Second, "-1.5": -1500 * time.Millisecond, "0.0000004": 0, "0.0000006": time.Microsecond, "1e2": 100 * time.Second,
		"31622400": 366 * 24 * time.Hour,
	} {
		if got, err := ParseSeconds(s); err != nil || got != want {
			t.Errorf("ParseSeconds(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", " 1", "1s", "NaN", "Inf", "-Inf", "31622401", "-31622401", "1e400", "1,5"} {
		if got, err := ParseSeconds(s); err == nil {
			t.Errorf("ParseSeconds(%q) = %v, want an error", s, got)
		}
	}
}

func FuzzParseSeconds(f *testing.F) {
	for _, s := range []string{"0", "1.234567", "-0.000001", "NaN", "1e9", "0x1p-2", "31622400", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseSeconds(s)
		if err != nil {
			return
		}
		if math.Abs(d.Hours()) > 366*24 {
			t.Errorf("ParseSeconds(%q) = %v is more than a year", s, d)
		}
		if back, err := ParseSeconds(Seconds(d)); err != nil || back != d {
			t.Errorf("%q is %v, written %s, read back as %v, %v", s, d, Seconds(d), back, err)
		}
	})
}

func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"at":1.5,"stamp":"2026-01-02T03:04:05.000006Z","source":"audit","type":"update","object":"leases a","detail":{"code":"200"}}`))
	f.Add([]byte(`{"at":"2","source":"run","type":"Phase"}`))
	f.Add([]byte(`{"at":-1e-7,"stamp":"9999-12-31T23:59:59-23:59","source":"run","type":"Phase"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e Event
		if json.Unmarshal(data, &e) != nil {
			return
		}
		if y := e.Stamp.UTC().Year(); y < 0 || y > 9999 {
			return // RFC 3339 cannot write it in UTC
		}
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatalf("%s was read and cannot be written: %v", data, err)
		}
		var back Event
		if err := json.Unmarshal(line, &back); err != nil {
			t.Fatalf("%s was written and cannot be read: %v", line, err)
		}
		if !e.Equal(back) {
			t.Errorf("%s\nis   %+v\nthen %+v", data, e, back)
		}
	})
}
