"""The same crawl with Scrapy, run by the Python of its own environment, without Floodmark.

Reads every page of a site once, extracts the same fields as Floodmark, and writes them as JSON lines.
"""

import hashlib
import json
import sys
import time

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.linkextractors import LinkExtractor


class Site(scrapy.Spider):
    name = "site"
    links = LinkExtractor()
    began = (0.0, 0.0)

    async def start(self):
        self.began = time.perf_counter(), time.process_time()
        yield scrapy.Request(self.url)

    def parse(self, response):
        text = "\n".join(part.strip() for part in response.css("main ::text").getall() if part.strip())
        links = [link.url for link in self.links.extract_links(response)]
        yield {
            "url": response.url,
            "title": response.css("title::text").get(),
            "text": text,
            "language": response.css("html::attr(lang)").get(),
            "author": response.css('meta[name="author"]::attr(content)').get(),
            "published": response.css('meta[property="article:published_time"]::attr(content)').get(),
            "open_graph": {
                tag.attrib["property"]: tag.attrib.get("content") for tag in response.css('meta[property^="og:"]')
            },
            "links": links,
            "hash": hashlib.sha256(text.encode()).hexdigest(),
        }
        for link in links:
            yield response.follow(link, self.parse)

    def closed(self, reason):
        wall, cpu = time.perf_counter() - self.began[0], time.process_time() - self.began[1]
        pages = self.crawler.stats.get_value("item_scraped_count", 0)
        print(json.dumps({"pages": pages, "wall": wall, "cpu": cpu}), flush=True)


if __name__ == "__main__":
    url, concurrency, out = sys.argv[1:]
    process = CrawlerProcess(
        {
            "CONCURRENT_REQUESTS": int(concurrency),
            "CONCURRENT_REQUESTS_PER_DOMAIN": int(concurrency),
            "DOWNLOAD_DELAY": 0,
            "ROBOTSTXT_OBEY": True,
            "LOG_LEVEL": "ERROR",
            "TELNETCONSOLE_ENABLED": False,
            "FEEDS": {out: {"format": "jsonlines"}},
        }
    )
    process.crawl(Site, url=url)
    process.start()
