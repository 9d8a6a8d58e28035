package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/flatline-chaos/flatline/internal/compare"
	"github.com/flatline-chaos/flatline/internal/golden"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// compared has every shape of cell: significant, not significant, without a window, with
// two, not reached by some and by most.
func compared() *compare.Table {
	p := func(v float64) *float64 { return &v }
	return &compare.Table{
		Title: "kube-controller-manager.node-monitor-grace-period", Facts: []string{"experiment kubelet-stopped", "profile fast"}, Family: 3,
		Arms: []compare.Column{
			{Name: "8s", Runs: 6},
			{Name: "12s", Runs: 5, Differs: []compare.Change{{Flag: "kube-controller-manager.node-monitor-grace-period", From: "8s", To: "12s"}}},
		},
		Rows: []compare.Row{
			{Milestone: judge.ReadyUnknown, From: judge.LeaseStalled, Cells: []compare.Cell{
				{Values: []float64{8.1, 8.2, 8.4, 8.6, 8.9, 10.5}, Median: p(8.5), Lo: p(8.1), Hi: p(10.5), Windows: [][2]float64{{7.95, 10.01}}, Model: p(8.98)},
				{Values: []float64{12.1, 12.2, 12.4, 12.6, 12.9}, Median: p(12.4), Windows: [][2]float64{{11.95, 14.01}}, Model: p(12.98), Delta: p(3.9), ModelDelta: p(4), P: p(0.013), Significant: true}}},
			{Milestone: judge.NoExecuteTainted, From: judge.ReadyUnknown, Cells: []compare.Cell{
				{Values: []float64{0.1, 0.1, 0.2, 0.2, 0.2, 10.1}, Median: p(0.2), Lo: p(0.1), Hi: p(10.1), Windows: [][2]float64{{-0.05, 0.95}, {-0.05, 1}, {9.95, 11.3}}, Model: p(0.475)},
				{Values: []float64{0.1, 0.2, 0.3, 0.3}, NotReached: 1, Median: p(0.3), Windows: [][2]float64{{-0.05, 1}, {9.95, 11.3}}, Model: p(0.475), Delta: p(-0.001), ModelDelta: p(0), P: p(1)}}},
			{Milestone: judge.PodsBack, From: judge.ReadyTrue, Cells: []compare.Cell{
				{Values: []float64{2.1}, Median: p(2.1)},
				{NotReached: 5, P: p(0.2)}}},
		},
		Totals: []compare.Row{{Milestone: judge.ReadyUnknown, From: judge.FaultInjected, Cells: []compare.Cell{
			{Values: []float64{7, 8}, Median: p(7.5), Model: p(7.9)}, {Values: []float64{11, 12}, Median: p(11.5), Model: p(11.9), Delta: p(4), ModelDelta: p(4)}}}},
		Notes: []string{"12s has 5 runs: too few | really"},
	}
}

func TestComparison(t *testing.T) {
	for _, format := range ComparisonFormats {
		var b bytes.Buffer
		if err := Comparison(&b, format, []*compare.Table{compared()}); err != nil {
			t.Fatal(err)
		}
		golden.Lines(t, "testdata/compare."+format, b.String())
		if format == "html" {
			figuresAreWellFormed(t, b.String())
		}
	}
}

// figuresAreWellFormed reads a page as XML as far as it goes: every figure is a picture that is.
func figuresAreWellFormed(t *testing.T, page string) {
	t.Helper()
	figures := strings.Split(page, "<figure>")[1:]
	if len(figures) != 4 {
		t.Errorf("%d figures, want one for each row", len(figures))
	}
	for _, f := range figures {
		f, _, _ = strings.Cut(f, "</figure>")
		d := xml.NewDecoder(strings.NewReader("<figure>" + f + "</figure>"))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v in %s", err, f)
			}
		}
	}
}

func TestKnobs(t *testing.T) {
	p := func(v float64) *float64 { return &v }
	k := &compare.Knobs{Base: "node-monitor-grace-period 12s", Runs: 20, Facts: []string{"experiment kubelet-stopped"}, Notes: []string{"a note"},
		Knobs: []compare.Knob{
			{Change: compare.Change{Flag: "kube-controller-manager.node-monitor-grace-period", From: "12s", To: "16s"}, Runs: 6, Effects: []compare.Effect{
				{Milestone: judge.ReadyUnknown, From: judge.FaultInjected, Delta: p(4.1), DeltaLo: p(3), DeltaHi: p(5.25), Model: p(4), Slope: p(1.025), ModelSlope: p(1)},
				{Milestone: judge.ReadyUnknown, From: judge.LeaseStalled, Delta: p(4.05), DeltaLo: p(3.5), DeltaHi: p(4.5), Model: p(4), Slope: p(1.0125), ModelSlope: p(1), P: p(0.001), Significant: true}}},
			{Change: compare.Change{Flag: "kubelet.rotateCertificates", From: "true", To: "false"}, Runs: 5, Effects: []compare.Effect{
				{Milestone: judge.ReadyUnknown, From: judge.FaultInjected, Delta: p(-0.1), Model: p(0), P: p(1)}}},
		}}
	for _, format := range []string{"text", "markdown", "json", "csv"} {
		var b bytes.Buffer
		if err := Knobs(&b, format, k); err != nil {
			t.Fatal(err)
		}
		golden.Lines(t, "testdata/knobs."+format, b.String())
	}
}
