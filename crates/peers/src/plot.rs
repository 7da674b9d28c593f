//! The plot: CPU time a decision, client and servers, of each case with many callers.

use std::path::Path;

use plotters::prelude::*;

use crate::report::Median;

const CLIENT: RGBColor = RGBColor(0x9e, 0xc5, 0xe8);
const SERVERS: RGBColor = RGBColor(0x2b, 0x5d, 0x8c);
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);

const WIDTH: u32 = 960;
const ROW: u32 = 34;
const TOP: u32 = 64;
/// Where bars begin, and the most pixels that one takes.
const LEFT: i32 = 370;
const ROOM: f64 = 470.0;

/// Draws it.
pub(crate) fn draw(medians: &[Median], path: &Path) -> Result<(), String> {
    let shown: Vec<&Median> = medians.iter().filter(|median| median.case.callers > 1).collect();
    let longest = shown.iter().map(|median| median.of.all_us()).fold(1.0, f64::max);
    let height = TOP + ROW * shown.len() as u32 + 16;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    rows(&area, &shown, ROOM / longest).map_err(|error| format!("{}: {error}", path.display()))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn rows(area: &Area<'_>, shown: &[&Median], scale: f64) -> Result<(), Box<dyn std::error::Error>> {
    let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
    area.fill(&WHITE)?;
    area.draw(&Text::new("CPU time a decision, all processes (µs; less is better)", (16, 12), text(18)))?;
    for (x, color, label) in [(LEFT, CLIENT, "client"), (LEFT + 100, SERVERS, "servers")] {
        area.draw(&Rectangle::new([(x, 40), (x + 14, 54)], color.filled()))?;
        area.draw(&Text::new(label, (x + 20, 40), text(14)))?;
    }
    for (row, median) in shown.iter().enumerate() {
        let top = (TOP + ROW * row as u32) as i32;
        let client = LEFT + (median.of.client_us * scale) as i32;
        let end = LEFT + (median.of.all_us() * scale) as i32;
        area.draw(&Text::new(median.case.name, (16, top + 5), text(14)))?;
        area.draw(&Rectangle::new([(LEFT, top), (client, top + 22)], CLIENT.filled()))?;
        area.draw(&Rectangle::new([(client, top), (end, top + 22)], SERVERS.filled()))?;
        area.draw(&Text::new(format!("{:.1}", median.of.all_us()), (end + 8, top + 5), text(14)))?;
    }
    area.present()?;
    Ok(())
}
