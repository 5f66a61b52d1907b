#!/usr/bin/env bash
# Checks the text of the project, and prints the file and line of each fault:
#
# * A comment of Rust code, of a script or of a manifest has at most 100 columns; rows of tables and
#   drawings may be wider. So has a line of prose in a Markdown file; tables, code blocks and links
#   may be wider.
# * A comment or a Markdown file names what acts: it says none of "whoever", "nobody" and
#   "somebody", and calls no thread or reader "who".
#
#   ci/prose.sh              all tracked files
#   ci/prose.sh src/list.rs  only these files
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -gt 0 ]; then
    files=("$@")
else
    mapfile -t files < <(git ls-files -- \
        '*.rs' '*.md' '*.toml' '*.sh' '.ci/*')
fi

perl -CSDA -e '
    use strict;
    use utf8;
    use warnings;
    my $faults = 0;
    sub fault {
        my ($what) = @_;
        print "$ARGV:$.: $what\n";
        $faults++;
    }
    my $thing = qr/readers?|writers?|callers?|waiters?|leaders?|threads?|calls?|loads?|those/;
    my $agent = qr/\b(whoever|nobody|somebody|(?:$thing) who)\b/i;
    my $fence = "";
    while (my $line = <>) {
        chomp $line;
        my $wide = length($line) > 100;
        if ($ARGV =~ /\.md$/) {
            if ($line =~ /^\s*(```+|~~~+)/) {
                my $mark = $1;
                if (!$fence) { $fence = $mark }
                elsif (index($mark, $fence) == 0) { $fence = "" }
            } elsif (!$fence && $wide && $line !~ /^\s*\|/) {
                # A link cannot be cut: only what stands before it counts, and what follows it.
                (my $prose = $line) =~ s/\]\([^)]*\)|^\s*\[[^\]]*\]:.*$|<?https?:\S+//g;
                fault("prose of " . length($line) . " columns") if length($prose) > 100;
            }
            fault("name what acts in the place of \"$1\"") if !$fence && $line =~ $agent;
        } elsif ($ARGV =~ /\.rs$/) {
            # A comment begins the line, or stands after code: not after a quote or a colon, which
            # leaves out texts and addresses.
            if ($line =~ m{^\s*//(.*)} || $line =~ m{[^":/]\s//\s([^"]*)$}) {
                my $text = $1;
                my $table = $text =~ m{^[!/]?\s*\|} || $text =~ /[┌│└─►]/;
                fault("comment of " . length($line) . " columns") if $wide && !$table;
                fault("name what acts in the place of \"$1\"") if $text =~ $agent;
            }
        } elsif ($wide && $line =~ /^\s*#/) {
            fault("comment of " . length($line) . " columns");
        }
    } continue {
        if (eof) {
            close ARGV;
            $fence = "";
        }
    }
    if ($faults) {
        print "$faults faults\n";
        exit 1;
    }
' -- "${files[@]}"
