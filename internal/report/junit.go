package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

// The parts of the JUnit format that CI systems read.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Time       string          `xml:"time,attr"`
		Timestamp  string          `xml:"timestamp,attr,omitempty"`
		Properties []junitProperty `xml:"properties>property,omitempty"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		ClassName string       `xml:"classname,attr"`
		Name      string       `xml:"name,attr"`
		Time      string       `xml:"time,attr"`
		Failure   *junitReason `xml:"failure,omitempty"`
		Error     *junitReason `xml:"error,omitempty"`
	}
	junitReason struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes a test case for each expectation, and one for the run as a whole. A
// missed expectation is a failure; what kept the run from having an answer is an
// error.
func JUnit(out io.Writer, r *judge.Run) error {
	r = shown(r)
	class := r.Experiment + "." + r.Profile
	s := junitSuite{Name: class, Time: fmt.Sprintf("%.3f", r.Cost.WallSeconds)}
	if r.InjectedAt != nil {
		s.Timestamp = r.InjectedAt.UTC().Format("2006-01-02T15:04:05")
	}
	for _, p := range [][2]string{{"outcome", string(r.Outcome)}, {"runID", r.RunID}, {"kubernetesVersion", r.KubernetesVersion}, {"nodeImage", r.NodeImage}} {
		s.Properties = append(s.Properties, junitProperty{p[0], p[1]})
	}
	whole := junitCase{ClassName: class, Name: "run", Time: s.Time}
	switch {
	case r.AsWanted(), r.Outcome == judge.OutcomeFail:
	default:
		whole.Error = &junitReason{Message: string(r.Outcome), Text: strings.Join(r.Reasons, "\n")}
	}
	s.Cases = append(s.Cases, whole)
	for _, m := range r.Milestones {
		if !m.Expected && !m.Never {
			continue
		}
		c := junitCase{ClassName: class, Name: caseName(m, r), Time: "0"}
		if m.Seconds != nil {
			c.Time = fmt.Sprintf("%.3f", *m.Seconds)
		}
		reason := &junitReason{Message: m.Explain(), Text: m.Explain()}
		switch m.Verdict {
		case judge.Fail:
			c.Failure = reason
		case judge.Inconclusive:
			c.Error = reason
		}
		s.Cases = append(s.Cases, c)
	}
	for _, c := range s.Cases {
		if c.Failure != nil {
			s.Failures++
		}
		if c.Error != nil {
			s.Errors++
		}
	}
	s.Tests = len(s.Cases)
	text, err := xml.MarshalIndent(junitSuites{Suites: []junitSuite{s}}, "", "  ")
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, xml.Header+inXML(string(text))+"\n")
	return err
}

// caseName tells apart the targets of a run only where there are several.
func caseName(m judge.Result, r *judge.Run) string {
	name := m.Title()
	if m.Never {
		name = "never " + name
	}
	if len(r.Target) > 1 {
		name += " on " + short(m.Node, r.Cluster)
	}
	return name
}
